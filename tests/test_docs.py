"""The examples of the README, the documentation and the docstrings run as shown."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for top in ("otlp", "solvers", "reductions") for path in (ROOT / top).rglob("*.py")]
MODULES = sorted(
    ".".join(("otlp", *path.relative_to(ROOT).with_suffix("").parts)).replace("otlp.otlp", "otlp")
    for path in SOURCES
    if not path.is_relative_to(ROOT / "otlp" / "solvers")
    and not path.is_relative_to(ROOT / "otlp" / "reductions")
    and ">>> " in path.read_text(encoding="utf-8")
)
NEEDS_TORCH = {"batched.md"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page: Path) -> None:
    if page.name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="needs torch: pip install otlp[torch]")
    text = page.read_text(encoding="utf-8").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test)
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    if name.startswith("otlp.batched"):
        pytest.importorskip("torch", reason="needs torch: pip install otlp[torch]")
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.attempted > 0
    assert result.failed == 0
