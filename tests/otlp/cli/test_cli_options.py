"""Each option has the same name, meaning and type in all commands."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from otlp.cli import main
from otlp.cli.options import ListOf, OutputFile
from otlp.studies.canvas import file_types
from tests.otlp.cli.command import ALL, command_of

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

SAYS_WHAT = {"--json", "--figure", "--rules", "--engine"}
"""Options whose help differs: the written file, a file that is read, or code that is run."""


def options(name: str) -> list[click.Option]:
    return [one for one in command_of(name).params if isinstance(one, click.Option)]


def by_name() -> dict[str, list[click.Option]]:
    found = defaultdict(list)
    for name in ALL:
        for option in options(name):
            found[option.opts[-1]].append(option)
    return found


def kind(option: click.Option) -> dict[str, Any]:
    """Return the type of an option, or of the items of a list."""
    part = option.type.part if isinstance(option.type, ListOf) else option.type
    found: dict[str, Any] = {**part.to_info_dict()}
    if isinstance(part, OutputFile):
        found["endings"] = part.endings
    return found


LEAST: dict[str, dict[str, Any]] = {
    "--vocab-size": {"min": 1},
    "--rules": {"param_type": "Solver", "name": "solver"},
    "--engine": {"choices": ["ortools", "graph-tool"]},
}
"""Allowed differences between commands: synthetic logits need more tokens, `compare` accepts own
rules and names of solvers, and an engine computes flows or, for `audit`, verifies."""


@pytest.mark.parametrize("name", by_name())
def test_an_option_means_the_same_everywhere(name: str) -> None:
    first, *others = by_name()[name]
    assert first.help
    for other in others:
        assert {**kind(other), **LEAST.get(name, {})} == {**kind(first), **LEAST.get(name, {})}
        assert name in SAYS_WHAT or other.help == first.help


@pytest.mark.parametrize("name", ALL)
def test_help_shows_every_option(name: str) -> None:
    output = CliRunner().invoke(main, [*name.split(), "--help"]).output
    flags = ["-h, --help", *(option.opts[0] for option in options(name))]
    assert all(f"\n  {flag}" in output for flag in flags)


@pytest.mark.parametrize("name", ALL)
def test_every_command_writes_json(name: str) -> None:
    assert "--json" in [option.opts[0] for option in options(name)]


def test_figures_are_asked_for_by_one_name() -> None:
    for name, found in by_name().items():
        drawn = [isinstance(o.type, OutputFile) and o.type.endings is file_types for o in found]
        assert all(drawn) == any(drawn) == (name == "--figure")


def test_zero_is_all_tokens() -> None:
    for name, found in by_name().items():
        if name.endswith("top-k"):
            assert all(option.help and "0 keeps all" in option.help for option in found)
            assert all(kind(option)["min"] == 0 for option in found)


def test_lists_of_names_are_plural_and_lists_of_numbers_are_not() -> None:
    for name, found in by_name().items():
        for option in found:
            if isinstance(option.type, ListOf):
                numbers = isinstance(option.type.part, click.types._NumberParamTypeBase)
                assert name.endswith("s") != numbers or name in ("--nodes", "--paths"), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_options_that_there_are(page: Path) -> None:
    for words in re.findall(r"\botlp ((?:[\w-]+)[^\n`|#]*)", page.read_text(encoding="utf-8")):
        name, *rest = words.split()
        if name == "lab" and rest:
            name, rest = f"lab {rest[0]}", rest[1:]
        if name in ALL:
            known = {flag for option in options(name) for flag in option.opts} | {"--help"}
            given = {word.partition("=")[0] for word in rest if re.match(r"--\w", word)}
            assert given <= known, f"{page.name}: otlp {words}"


def test_nothing_is_kept_of_top_k_zero_and_top_p_one() -> None:
    words = ["--solver", "martingale", "--row", "2"]
    # The width of the column is that of the longest time.
    plain, asked = (
        [
            line.rstrip()
            for line in CliRunner().invoke(main, ["solve", *words, *more]).output.splitlines()[:4]
        ]
        for more in ([], ["--top-k", "0", "--top-p", "1"])
    )
    assert plain == asked


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("otlp so", {"solve"}),
        ("otlp bench --solvers martingale,max", {"martingale,max-flow"}),
        ("otlp solve --solver gr", {"greedy"}),
        ("otlp compare --schemes gr", {"greedy"}),
        ("otlp compare --fi", {"--figure"}),
    ],
)
def test_the_shell_completes(words: str, found: set[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        environment = {"_OTLP_COMPLETE": f"{shell}_source"}
        source = CliRunner().invoke(main, [], prog_name="otlp", env=environment)
        assert "_OTLP_COMPLETE" in source.output
    environment = {
        "_OTLP_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    result = CliRunner().invoke(main, [], prog_name="otlp", env=environment)
    assert {line.partition(",")[2] for line in result.output.splitlines()} == found
