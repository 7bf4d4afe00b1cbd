"""The examples of the README, the documentation and the docstrings run as shown."""

import ast
import doctest
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = {
    ".".join(("otlp", *path.relative_to(ROOT).with_suffix("").parts)).replace(
        "otlp.otlp", "otlp"
    ): path
    for top in ("otlp", "solvers", "reductions")
    for path in sorted((ROOT / top).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
    if top != "otlp" or path.relative_to(ROOT).parts[1] not in ("solvers", "reductions")
}
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


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_figure_is_an_svg_with_a_caption_that_says_its_command(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
    for number, line in enumerate(lines):
        found = re.match(r"!\[(.+)\]\((.+)\)$", line)
        if found and not found[2].endswith("architecture.svg"):  # a drawing stands for itself
            assert found[2].endswith(".svg")
            assert (page.parent / found[2]).exists()
            below = "\n".join(lines[number + 1 : number + 5]) + "\n"
            caption = re.match(r"\*(?:[^*]|\\\*)+\*\n", below.replace("\\*", "\\"))
            assert caption and "`python " in caption[0], f"{page.name}: {line} has no caption"


def names_a_missing_part(name: str) -> bool:
    """Whether a module needs torch or transformers, and they are not there."""
    needs = {
        "otlp.batched": "torch",
        "otlp.device": "transformers",
        "otlp.decode.generating": "transformers",
    }
    return any(
        name.startswith(part) and importlib.util.find_spec(package) is None
        for part, package in needs.items()
    )


@pytest.mark.parametrize("name", SOURCES)
def test_docstrings(name: str) -> None:
    if names_a_missing_part(name):
        pytest.skip("needs torch and transformers: pip install otlp[decode]")
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        # docstrings, and the strings below attributes; no names but those that they import
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and ">>> " in text:
                test = doctest.DocTestParser().get_doctest(text, {}, name, name, node.lineno)
                assert doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed == 0
