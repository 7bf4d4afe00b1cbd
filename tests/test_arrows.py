"""Structure of the library: imports in one direction, no cycles, no hidden modules."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

import otlp
from otlp.numerics.compiled import WITHOUT_KERNELS
from tests.otlp.cli.command import PRODUCT
from tests.processes import run_python

ROOT = Path(__file__).parent.parent

AROUND = {"otlp.auditing", "otlp.batched", "otlp.decode", "otlp.device"}
"""Packages outside the core, except `studies` and `cli`: no core package imports them."""

CORE_COMMANDS = ("bench", "check", "compare", "export", "info", "solve", "sweep")

GROUND = {
    "otlp.capability", "otlp.checks", "otlp.distribution", "otlp.errors", "otlp.showing",
    "otlp.timing",
}  # fmt: skip
CORE = GROUND | {"otlp.numerics", "otlp.drafts", "otlp.problem", "otlp.plan", "otlp.solution"}
SOLVING = CORE | {"otlp.reductions", "otlp.certificate", "otlp.solvers", "otlp._solve"}
FACE = {"otlp", "otlp.captures", "otlp.synthetic"}

ARROWS = {
    "otlp.errors": set(),
    "otlp.timing": set(),
    "otlp.showing": set(),
    "otlp.capability": {"otlp.errors"},
    "otlp.checks": {"otlp.capability", "otlp.errors"},
    "otlp.distribution": {"otlp.checks", "otlp.errors"},
    "otlp.numerics": GROUND,
    "otlp.drafts": GROUND | {"otlp.numerics"},
    "otlp.problem": GROUND | {"otlp.numerics", "otlp.drafts"},
    "otlp.plan": GROUND | {"otlp.numerics", "otlp.drafts", "otlp.problem"},
    "otlp.solution": GROUND | {"otlp.plan"},
    "otlp.reductions": CORE,
    "otlp.certificate": CORE | {"otlp.reductions"},
    "otlp.solvers": CORE | {"otlp.reductions", "otlp.certificate"},
    "otlp._solve": SOLVING,
    "otlp.data": GROUND,
    "otlp.auditing": SOLVING,
    "otlp.parallel": SOLVING | {"otlp.data"},
    "otlp.__main__": {"otlp.cli"},
    "otlp.export": SOLVING | {"otlp.data"},
    # auditing: only names for type checkers; `otlp.audit` is loaded on first access
    "otlp": SOLVING | {"otlp.auditing", "otlp.data", "otlp.parallel"},
    "otlp.batched": GROUND | {"otlp.numerics"},
    "otlp.decode": GROUND | {"otlp", "otlp.drafts", "otlp.numerics", "otlp.plan", "otlp.solvers"},
    "otlp.device": GROUND | {"otlp.batched", "otlp.decode", "otlp.numerics"},
    "otlp.studies": SOLVING | FACE | {"otlp.data", "otlp.decode", "otlp.device", "otlp.parallel"},
    "otlp_lab": SOLVING
    | FACE
    | {"otlp.auditing", "otlp.cli", "otlp.data", "otlp.decode", "otlp.device", "otlp.studies"}
    | {"otlp.parallel"},
    "otlp.testing": GROUND | {"otlp.auditing", "otlp.drafts"},
    "otlp.plot": SOLVING | {"otlp.studies", "otlp.parallel"},
    "otlp.report": GROUND | {"otlp", "otlp.studies"},
    "otlp.cli": SOLVING
    | FACE
    | {"otlp.auditing", "otlp.data", "otlp.decode", "otlp.device", "otlp.export", "otlp.studies"}
    | {"otlp.parallel", "otlp.report", "otlp.testing"},
}
"""Each package, and the other packages that it may import."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted([*(ROOT / "otlp").rglob("*.py"), *(ROOT / "otlp_lab").rglob("*.py")]):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """Return the package modules that a file imports, including those for annotations."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in whole}
    return {name for name in names if name.split(".")[0] in ("otlp", "otlp_lab")}


def package(name: str) -> str:
    first, *rest = name.split(".")
    return first if first == "otlp_lab" else ".".join([first, *rest[:1]])


def test_imports_follow_the_arrows() -> None:
    for name, path in MODULES.items():
        allowed = ARROWS[package(name)] | {package(name)}
        wrong = {imported for imported in imports(path) if package(imported) not in allowed}
        assert not wrong, f"{name} must not import {wrong}"


def test_nothing_that_kernels_depend_on_is_left_out_of_their_stamp() -> None:
    """The modules that a kernel's file imports, and their imports, are included."""
    kernels = {n for n, path in MODULES.items() if "@compiled" in path.read_text(encoding="utf-8")}
    reached, new = set[str](), kernels - {"otlp.numerics.compiled"}
    while new:
        reached |= new
        asked = set[str]().union(*(imports(MODULES[name]) for name in new if name in MODULES))
        new = {name for name in asked if name != "otlp"} - reached
    assert "otlp.numerics.lanes" in reached
    assert not {name for name in reached if name.split(".")[1] in WITHOUT_KERNELS}


def test_nothing_outside_of_the_laboratory_imports_it() -> None:
    """Its command group is loaded by name on demand."""
    assert not [name for name, allowed in ARROWS.items() if "otlp_lab" in allowed]
    code = (
        "import importlib, sys\n"
        f"for name in {PRODUCT}: importlib.import_module(f'otlp.cli.{{name}}')\n"
        "assert not [m for m in sys.modules if m.startswith('otlp_lab')]\n"
        "assert importlib.import_module('otlp.cli.lab').command.name == 'command'"
    )
    run_python(code)


def test_the_core_imports_nothing_that_stands_around_it() -> None:
    for name, allowed in ARROWS.items():
        outer = {"otlp", "otlp.__main__", "otlp.plot", "otlp.studies", "otlp.cli", "otlp.testing"}
        outer |= {"otlp.report", "otlp_lab"}
        if name not in AROUND | outer:
            assert not allowed & (AROUND | {"otlp.studies", "otlp.cli"}), name
    code = (
        "import importlib, sys, otlp\n"
        f"for name in {CORE_COMMANDS}: importlib.import_module(f'otlp.cli.{{name}}')\n"
        f"around = [m for m in sys.modules if m.startswith({tuple(sorted(AROUND))})]\n"
        "assert not around, around"
    )
    run_python(code)


def test_what_stands_around_the_core_loads_when_it_is_asked_for() -> None:
    assert otlp.audit is importlib.import_module("otlp.auditing").audit
    assert otlp.testing is importlib.import_module("otlp.testing")
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        otlp.adit  # noqa: B018


WALKED = """
import inspect, sys
if {hidden}: sys.modules |= dict.fromkeys(("torch", "transformers"))  # as if not installed
import otlp
names = dir(otlp)
assert {{"audit", "decode", "solve", "testing"}} <= set(names) and "studies" not in names
assert all(getattr(otlp, name) is not None for name in names)
assert set(names) <= {{name for name, _ in inspect.getmembers(otlp)}}
for name in ("batched", "device"):
    assert hasattr(otlp, name) == (name in names) == (not {hidden})
    if {hidden}:
        try: getattr(otlp, name)
        except otlp.errors.PartNotFoundError as error: assert "pip install" in str(error)
        try: exec(f"from otlp import {{name}}")
        except otlp.errors.EngineNotFoundError as error: assert "pip install" in str(error)
        else: raise AssertionError(name)
"""


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param(False, marks=pytest.mark.slow, id="all of it"),
        pytest.param(True, id="without torch"),
    ],
)
def test_every_name_that_is_listed_resolves(hidden: bool) -> None:
    run_python(WALKED.format(hidden=hidden or find_spec("torch") is None))


DECODE = ("models", "drafting", "verification", "round", "laws")
"""Parts of `otlp.decode`, each of which imports only those before it."""


def test_parts_of_decode_are_in_order() -> None:
    allowed = {part: set(DECODE[:at]) for at, part in enumerate(DECODE)}
    for name, path in MODULES.items():
        part = (*name.split("."), "", "")[2]
        if name.startswith("otlp.decode.") and part in allowed:
            asked = {(*other.split("."), "", "")[2] for other in imports(path)
                     if other.startswith("otlp.decode.")}  # fmt: skip
            odd = asked & {*allowed, "cascades"} - allowed[part] - {part}
            assert not odd, f"{name} must not import {odd} of otlp.decode"


def test_decode_asks_the_faces_of_plans_and_solvers() -> None:
    for name, path in MODULES.items():
        if package(name) == "otlp.decode":
            inside = imports(path) & {
                m for m in MODULES if m.startswith(("otlp.plan.", "otlp.solvers."))
            }
            assert not inside, f"{name} reaches round the public face: {inside}"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' <- '.join(error.args[1])}")


SCRIPT = "otlp.solvers.engines.engine_server"
"""Run by another interpreter."""


def test_no_name_hides_a_module() -> None:
    for name in sorted(MODULES.keys() - {SCRIPT}):
        namespace: dict[str, object] = {}
        try:
            exec(f"import {name} as module", namespace)
        except ImportError:
            if find_spec("torch") and find_spec("transformers"):
                raise
            continue
        assert namespace["module"] is importlib.import_module(name), name


def test_no_two_classes_share_a_name() -> None:
    where: dict[str, str] = {}
    for name, path in MODULES.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                assert node.name not in where, f"{node.name}: {where[node.name]} and {name}"
                where[node.name] = name


def test_the_top_level_reads_as_a_table_of_contents() -> None:
    beside = {"__main__.py"}  # the entry point of `python -m otlp`
    assert len({path.name for path in (ROOT / "otlp").glob("*.py")} - beside) <= 11


def test_optional_parts_are_not_imported_with_the_package() -> None:
    code = (
        "import sys, otlp, otlp.cli\n"
        "optional = {'torch', 'transformers', 'cvxpy', 'matplotlib'}\n"
        "optional |= {'dask', 'distributed', 'llvmlite', 'scipy.sparse', 'ortools', 'highspy'}\n"
        # and these take a third of a second
        "import otlp.cli.compare, otlp.cli.bench, otlp.cli.sweep, otlp.cli.solve\n"
        "optional |= {'numba', 'scipy.stats', 'scipy.optimize', 'asyncio', 'otlp.decode'}\n"
        "heavy = optional & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    run_python(code)


@pytest.mark.parametrize("name", ["solvers", "reductions"])
def test_a_link_is_no_package_of_its_own(name: str) -> None:
    """Its classes would be duplicates that `isinstance` does not recognise."""
    with pytest.raises(ImportError):  # a source distribution does not have it
        importlib.import_module(name)


def test_every_package_is_found_for_the_wheel() -> None:
    """A package needs an `__init__.py`."""
    assert not {
        path.parent for path in MODULES.values() if not (path.parent / "__init__.py").exists()
    }
