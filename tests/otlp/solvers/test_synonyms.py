"""Alternative names of solvers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import otlp
from otlp.solvers import SOLVERS, make_solver, with_time_limit
from otlp.solvers.synonyms import SYNONYMS
from tests.otlp.cli.command import done


def test_every_solver_has_another_name_and_none_is_one() -> None:
    assert set(SYNONYMS.values()) == set(SOLVERS)
    assert not set(SYNONYMS) & set(SOLVERS)


@pytest.mark.parametrize(
    ("word", "name"),
    [("SpecInfer", "recursive-rejection"), ("OTM", "linear-program"), ("or tools", "max-flow")],
)
def test_they_are_taken_where_names_are(word: str, name: str) -> None:
    assert make_solver(word).name == with_time_limit(word, 1.0).name == name


def test_the_command_line_says_the_name(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    done("solve", "--solver", "HiGHS", "--top-k", 5, "--json", path)
    assert json.loads(path.read_text())["solver"] == "linear-program"
    words = "compare --rows 1 --n 2 --schemes iid --rules spectr,SpecInfer --top-k 5".split()
    assert "k-seq" in done(*words)


def test_a_name_that_is_none_is_still_refused() -> None:
    with pytest.raises(otlp.errors.UnknownSolverError, match="did you mean 'martingale'"):
        make_solver("martingal")
