"""Solve a problem with a solver that may not support it.

Times and time limits must not include compilation or the loading of compiled code: a solve that
compiled or loaded code is repeated (`without_compiling`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from otlp.drafts import IID
from otlp.errors import OTLPError
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.solver import Solver

Result = TypeVar("Result")

MOST_REPEATS = 5
"""Maximum number of repetitions; one or two suffice unless other code keeps compiling."""

WARM_WORK = 10_000.0
"""Maximum work of a problem that is solved only as a warm-up."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """Result of one solver on one problem.

    Attributes
    ----------
    solution : Solution or None
        None if the solver does not support the problem.
    reason : str
        Reason why there is no plan; empty if there is a plan.
    """

    solution: Solution | None
    reason: str = ""


def attempt(solver: Solver, problem: Problem) -> Attempt:
    """Solve a problem if the solver supports it, without compilation in the reported time."""
    capability = solver.supports(problem)
    if not capability:
        return Attempt(None, capability.reason)
    try:
        solution = without_compiling(lambda: solver.solve(problem))
    except OTLPError as error:
        return Attempt(None, str(error))
    if solution.plan is not None:
        return Attempt(solution)
    return Attempt(solution, f"{solution.status.value} {solution.message}".strip())


@cache
def small_problems() -> list[Problem]:
    """Return two warm-up problems: 2 drafts of 4 tokens, and 3 drafts of 100 tokens.

    The vocabulary has tokens that cannot be drafted, so that reductions are compiled, too.
    """
    rng = np.random.default_rng(0)
    problems = []
    for size, n in ((4, 2), (100, 3)):
        draft = np.append(rng.dirichlet(np.ones(size)), np.zeros(size))
        problems.append(Problem(rng.dirichlet(np.ones(2 * size)), IID(draft, n)))
    return problems


def warm(solver: Solver) -> None:
    """Start engines and compile code by solving the small problems that the solver supports."""
    for problem in small_problems():
        if solver.supports(problem) and solver.work(problem) <= WARM_WORK:
            attempt(solver, problem)


def without_compiling(action: Callable[[], Result]) -> Result:
    """Return the result of a call of `action` during which no code was compiled or loaded.

    Parameters
    ----------
    action : callable
        Called again while it compiles; must return the same result each time.
    """
    from numba.core import event

    for _ in range(MOST_REPEATS):
        # The compiler lock is also taken to load cached code.
        with event.install_recorder("numba:compiler_lock") as recorded:
            result = action()
        if not any(found.is_start for _, found in recorded.buffer):
            break
    return result
