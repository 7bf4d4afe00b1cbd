"""The one loop of the studies: does the solver take the problem?  Solve it, or say why not.

What is compiled, or loaded from the cache of compiled code, during a solve must be in no time and
in no limit: such a solve is made again (`settled`), whatever path through the code it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from otlp.errors import OTLPError
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.solver import Solver

Result = TypeVar("Result")

MOST_REPEATS = 5
"""Compiling ends after one repetition or two; something else that loads code must not loop."""

WARM_WORK = 10_000.0
"""Work up to which a problem is solved only to compile and load."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """What became of one problem with one solver.

    Attributes
    ----------
    solution : Solution or None
        None if the solver does not take the problem.
    reason : str
        Why there is no plan; empty if there is one.
    """

    solution: Solution | None
    reason: str = ""


def attempt(solver: Solver, problem: Problem) -> Attempt:
    """Solve a problem if the solver takes it, with everything compiled before."""
    capability = solver.supports(problem)
    if not capability:
        return Attempt(None, capability.reason)
    try:
        solution = settled(lambda: solver.solve(problem))
    except OTLPError as error:
        return Attempt(None, str(error))
    if solution.plan is not None:
        return Attempt(solution)
    return Attempt(solution, f"{solution.status.value} {solution.message}".strip())


def warm(solver: Solver, problems: Iterable[Problem]) -> None:
    """Start engines, compile and load: solve what a solver takes and is done with at once."""
    for problem in problems:
        if solver.supports(problem) and solver.work(problem) <= WARM_WORK:
            attempt(solver, problem)


def settled(action: Callable[[], Result]) -> Result:
    """The result of an action in which nothing had to be compiled or loaded any more.

    Parameters
    ----------
    action : callable
        Called again while it compiles; must give the same again.
    """
    from numba.core import event

    class Loads(event.Listener):
        """The lock of the compiler is taken to load, too, what another process compiled."""

        def on_start(self, found: event.Event) -> None:
            seen.append(found)

        def on_end(self, found: event.Event) -> None:
            pass

    for _ in range(MOST_REPEATS):
        seen: list[event.Event] = []
        with event.install_listener("numba:compiler_lock", Loads()):
            result = action()
        if not seen:
            break
    return result
