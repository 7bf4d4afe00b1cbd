"""Every public name is in the reference and has an example, which test_docs.py runs."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.pages import ROOT, needs_missing_package

PUBLIC = (
    "otlp",
    "otlp.auditing",
    "otlp.batched",
    "otlp.capability",
    "otlp.data.captures",
    "otlp.data.synthetic",
    "otlp.decode",
    "otlp.device",
    "otlp.drafts",
    "otlp.errors",
    "otlp.export",
    "otlp_lab.design",
    "otlp_lab.generation",
    "otlp_lab.servers",
    "otlp_lab.tuning",
    "otlp.plan",
    "otlp.plot",
    "otlp.reductions",
    "otlp.solvers",
    "otlp.testing",
)
"""Modules whose `__all__` is public."""

PAGES = ROOT / "docs" / "reference"


def module(name: str) -> Any:
    if needs_missing_package(name):
        pytest.importorskip("torch", reason="needs torch: pip install -e .[torch]")
    return importlib.import_module(name)


def find(path: str) -> Any:
    """Return the object of a dotted path."""
    first, *rest = path.split(".")
    found = importlib.import_module(first)
    for name in rest:
        if not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
        found = getattr(found, name)
    return found


def entries() -> list[str]:
    pages = sorted(PAGES.glob("*.md"))
    return [path for page in pages for path in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]


def attribute_docstring(name: str, attribute: str) -> str:
    """Return the string below ``attribute = ...``, in the module or its source module."""
    path = Path(importlib.import_module(name).__file__ or "")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for statement, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            if attribute in [alias.asname or alias.name for alias in statement.names]:
                return attribute_docstring(statement.module, attribute)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if attribute in [getattr(target, "id", None) for target in targets]:
            value = getattr(after, "value", None)
            return str(getattr(value, "value", ""))
    return ""


def docstring(name: str, attribute: str) -> str:
    """Return the docstring of a class, function or module, or the string below a value."""
    thing = getattr(importlib.import_module(name), attribute)
    if isinstance(thing, type | FunctionType | ModuleType):
        return thing.__doc__ or ""
    return attribute_docstring(name, attribute)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_stands_in_the_reference(name: str) -> None:
    public = module(name)
    documented = [(path.rpartition(".")[2], find(path)) for path in entries() if importable(path)]
    for one in public.__all__:
        thing = getattr(public, one)
        assert any(one == other and thing is found for other, found in documented), (
            f"{name}.{one} is not in docs/reference"
        )


def importable(path: str) -> bool:
    try:
        find(path)
    except ImportError:
        return False
    return True


def test_the_reference_names_what_there_is() -> None:
    assert len(set(entries())) == len(entries())
    for path in entries():
        if not needs_missing_package(path):
            assert find(path) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_hold_nothing_that_the_site_does_not_render(name: str) -> None:
    for one in module(name).__all__:
        odd = re.search(r"::$|^ *(=====|\.\. )", docstring(name, one), re.MULTILINE)
        assert not odd, f"{name}.{one} has reStructuredText: {odd and odd[0]}"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    for one in module(name).__all__:
        assert ">>> " in docstring(name, one), f"{name}.{one} has no example"
