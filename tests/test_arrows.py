"""The arrows between the packages run one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FACE = {
    "otlp",
    "otlp.audit",
    "otlp.studies.benchmark",
    "otlp.studies.compare",
    "otlp.studies.crosscheck",
    "otlp.solve",
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for top in ("otlp", "solvers", "reductions"):
        for path in sorted((ROOT / top).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] in (("otlp", "solvers"), ("otlp", "reductions")):
                continue
            parts = relative.with_suffix("").parts
            name = ".".join(parts if top == "otlp" else ("otlp", *parts))
            found.append((name.removesuffix(".__init__"), path))
    return found


def imports(path: Path) -> set[str]:
    """Modules imported at run time: imports for annotations only do not count."""
    names: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        pending.extend(ast.iter_child_nodes(node))
    return names


def layer(name: str) -> str:
    head = ".".join(name.split(".")[:2])
    if head in ("otlp.solvers", "otlp.reductions", "otlp.cli", "otlp.decode", "otlp.batched"):
        return head
    return "face" if name in FACE else "core"


FORBIDDEN = {
    "core": {"otlp.solvers", "otlp.reductions", "otlp.cli", "otlp.decode", "otlp.batched"},
    "otlp.reductions": {"otlp.solvers", "otlp.cli", "otlp.decode", "otlp.batched"},
    "otlp.solvers": {"otlp.cli", "otlp.decode", "otlp.batched"},
    "otlp.batched": {"otlp.cli", "otlp.decode"},
    "otlp.decode": {"otlp.cli", "otlp.solvers", "otlp.reductions"},
    "otlp.cli": set(),
    "face": {"otlp.cli", "otlp.decode", "otlp.batched"},
}


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda value: str(value))
def test_imports_follow_the_arrows(name: str, path: Path) -> None:
    for imported in imports(path):
        head = ".".join(imported.split(".")[:2])
        assert head not in FORBIDDEN[layer(name)], f"{name} must not import {imported}"


def test_optional_parts_are_not_imported_with_the_package() -> None:
    import subprocess
    import sys

    code = (
        "import sys, otlp, otlp.cli\n"
        "optional = {'torch', 'transformers', 'cvxpy', 'graph_tool', 'matplotlib'}\n"
        "heavy = optional & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
