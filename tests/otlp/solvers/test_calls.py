"""Number of calls of library functions in a solve, which dominates the time of small problems."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import pytest

import otlp

PACKAGE = f"{Path(otlp.__file__).parent}/"


@cache
def ours(file: str) -> bool:
    return file.startswith(PACKAGE)


def calls(solver: str) -> list[CodeType]:
    """Return the code of each library call in `otlp.solve`, including kernels."""
    target, draft = otlp.captures.builtin().distributions(3, top_k=30)
    found: list[CodeType] = []

    def seen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and ours(frame.f_code.co_filename):
            found.append(frame.f_code)

    # the first loads kernels and engines
    for profile in (None, seen):
        problem = otlp.Problem(target, otlp.IID(draft, n=2))
        sys.setprofile(profile)
        try:
            otlp.solve(problem, solver)
        finally:
            sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("solver", "most"),
    [("martingale", 50), ("auto", 60), ("max-flow", 150), ("slackness", 170),
     ("global-resolution", 160)],
)  # fmt: skip
def test_a_solve_takes_few_calls(solver: str, most: int) -> None:
    assert len(calls(solver)) <= most


@pytest.mark.parametrize("solver", otlp.solvers.SOLVERS)
def test_each_check_is_made_once(solver: str) -> None:
    try:
        names = [code.co_qualname for code in calls(solver)]
    except otlp.errors.UnsupportedProblemError:
        return
    if solver != "auto":  # tries each solver in turn
        assert sum(name.endswith(".supports") for name in names) == 1
        assert names.count("check_problem") <= 3  # in `select`, `supports` and `work`, all public
