"""The examples of the README, the documentation and the docstrings run as shown."""

import ast
import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from tests.pages import PAGES, ROOT, SOURCES, needs_missing_package

NEEDS = {"batched.md": "torch", "tokens_a_second.md": "transformers"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


WITH_EXAMPLES = [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]


SLOW = ("audit.md", "engines.md", "servers.md")
"""Dozens of audits with ten thousand real calls each, or thousands of pairs of completions."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.name in SLOW)) for p in WITH_EXAMPLES],
    ids=[page.name for page in WITH_EXAMPLES],
)
def test_pages(page: Path, request: pytest.FixtureRequest) -> None:
    if page.name not in SLOW:
        request.getfixturevalue("few_repetitions")
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason="pip install -e .[decode]")
    text = page.read_text(encoding="utf-8").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test)
    assert result.failed == 0


FIGURE = re.compile(r"^!\[(.+)\]\((.+)\)\n\n(?:\*((?:[^*\\]|\\\*)+)\*\n)?", re.MULTILINE)
CAPTION = re.compile(
    r"Data: \S.*\. Rows: \S.*\. Machine: \S.*\. "
    r"Command: .*?`(?:python (\S+\.py)|pytest (\S+\.py)|otlp [a-z]+)\b[^`]*`"
)


def test_figures_are_svg_and_captions_say_data_rows_machine_and_command() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = FIGURE.findall(text)
        assert len(found) == text.count("!["), page
        for words, target, caption in found:
            assert words and target.endswith(".svg") and (page.parent / target).exists(), page
            source = CAPTION.search(" ".join(caption.split()))
            assert source, f"{page}: {target} needs a caption with data, rows, machine and command"
            assert (ROOT / (source[1] or source[2] or ".")).exists(), page


def test_every_figure_is_shown_and_is_an_svg() -> None:
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for _, target, _ in FIGURE.findall(page.read_text(encoding="utf-8"))
    }
    assert {path.resolve() for path in (ROOT / "docs").rglob("*.svg")} == shown
    assert not [
        path
        for kind in ("png", "jpg", "gif", "webp")
        for path in (ROOT / "docs").rglob(f"*.{kind}")
    ]


TIME = re.compile(r"[\d.,]*\d (?:ms|µs)\b")
PAGE_OF_TIMES = ROOT / "docs" / "benchmarks.md"
NO_BENCHMARKS = (
    *("llama_cpp", "rivals"),
    *("capture_pair", "corpus", "distill", "kernels", "measuring", "tree_schemes"),
    *("target_texts", "train_pair"),
)
"""Parts of other benchmarks, and scripts that train the trained pair."""
OWN_TIMES = ("benchmarks.md", "global_resolution.md", "changelog.md")
"""Pages with times; all other pages quote the first page."""


def test_times_on_other_pages_are_those_of_the_benchmarks() -> None:
    held = PAGE_OF_TIMES.read_text(encoding="utf-8")
    for page in PAGES:
        if page.name not in OWN_TIMES:
            text = page.read_text(encoding="utf-8")
            missing = [time for time in TIME.findall(text) if time not in held]
            assert not missing, f"{page.name}: {missing} are not on the page of benchmarks"
            for row in re.findall(r"^\| \(\d+, \d\) \|.*$", text, re.MULTILINE):
                assert row in held, f"{page.name}: {row}"


def test_every_benchmark_is_in_the_list_of_all() -> None:
    listed = set(re.findall(r"bench/[\w/]+\.py", PAGE_OF_TIMES.read_text(encoding="utf-8")))
    held = {str(path.relative_to(ROOT)) for path in (ROOT / "bench").rglob("*.py")}
    parts = {path for path in held if "/global_resolution/" in path}  # for run_all.py
    assert held - parts - listed == {f"bench/{name}.py" for name in NO_BENCHMARKS}
    assert listed <= held


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("name", SOURCES)
def test_docstrings(name: str) -> None:
    """Also with `np.errstate` set to raise; every public name has an example."""
    if needs_missing_package(name):
        pytest.skip("needs torch and transformers: pip install -e .[decode]")
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        # Docstrings and the strings below attributes, without names other than their imports.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and ">>> " in text:
                test = doctest.DocTestParser().get_doctest(text, {}, name, name, node.lineno)
                with np.errstate(all="raise"):
                    assert doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed == 0
