"""Many problems, one solver: rows in, solutions or errors out, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from otlp.data.capture import Capture
from otlp.distribution import whole_number
from otlp.errors import InvalidInputError, OTLPError, TaskError
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.by_name import make_solver
from otlp.solvers.solver import Solver
from otlp.sweeps.workers import in_order, worker_count

__all__ = ["Row", "solve_many"]

Outcome: TypeAlias = Solution | OTLPError

CHUNK_TOKENS = 2**18
"""Tokens of the rows of a chunk: some 20 ms of solving, and a few MB of plans."""

LEAST_CHUNKS = 4
"""Chunks for each worker, so that none waits long for the last."""


@dataclass(frozen=True, eq=False)
class Row:
    """What became of one problem.

    Attributes
    ----------
    row : int
        Place of the problem among those that were handed in, from 0.
    solution : Solution or None
        None where an error was raised instead.
    error : OTLPError or None
        Why there is no solution.
    """

    row: int
    solution: Solution | None
    error: OTLPError | None = None

    @property
    def status(self) -> str:
        """Name of the solution's `Status`, or of the type of the error."""
        return type(self.error).__name__ if self.solution is None else self.solution.status.name

    @property
    def reason(self) -> str:
        """What the solver has to add, or the message of the error."""
        return str(self.error) if self.solution is None else self.solution.message

    @property
    def acceptance(self) -> float:
        """Acceptance of the plan; NaN where there is none."""
        return float("nan") if self.solution is None else self.solution.acceptance


def solve_many(
    problems: Iterable[Problem],
    solver: str | Solver = "auto",
    *,
    jobs: int | None = None,
    chunk: int | None = None,
    progress: bool = False,
    plans: bool = True,
    **options: Any,
) -> Iterator[Row]:
    """Solve many problems; one that cannot be solved stops no other.

    Parameters
    ----------
    problems : iterable of Problem
        `otlp.CaptureProblems`, `otlp.SyntheticProblems`, a list, a generator.
    solver : str or Solver
        As in `otlp.solve`.
    jobs : int, optional
        Workers on this machine.  By default those of `joblib.parallel_config` where it is used
        (which may be a cluster), else this process alone.
    chunk : int, optional
        Rows to a task; a few milliseconds' worth by default.
    progress : bool
        Show a bar on standard error, if that is a terminal.
    plans : bool
        Keep the plans.  Without them a row takes V bytes, for the subset.
    **options
        Hyperparameters of the named solver.

    Yields
    ------
    Row
        One for each problem, in order.

    Raises
    ------
    UnknownSolverError, InvalidInputError
        If an argument or option is of no use, at once; of single problems it is the row that
        says so.

    Notes
    -----
    Rows do not depend on the workers or chunks.  In memory there are the chunks that are under
    way, four a worker.

    Examples
    --------
    >>> import otlp
    >>> problems = otlp.CaptureProblems(otlp.captures.builtin(), n=4)
    >>> rows = otlp.solve_many(problems[:3])
    >>> [(row.row, row.status, round(row.acceptance, 6)) for row in rows]
    [(0, 'SOLVED', 0.787422), (1, 'SOLVED', 0.80298), (2, 'SOLVED', 0.698832)]
    """
    if isinstance(problems, Capture):
        raise InvalidInputError(
            "problems is a Capture: say how tokens are drafted, as in "
            "otlp.CaptureProblems(capture, n=4)"
        )
    if not isinstance(problems, Iterable) or isinstance(problems, str | bytes | Mapping):
        raise InvalidInputError(
            f"problems is a {type(problems).__name__}: it must be an iterable of otlp.Problem, "
            "such as otlp.CaptureProblems(capture, n=4)"
        )
    for name, value in (("progress", progress), ("plans", plans)):
        if not isinstance(value, bool):
            raise InvalidInputError(f"{name} is a {type(value).__name__}: it must be True or False")
    if chunk is not None:
        chunk = whole_number(chunk, "chunk")
    solve = partial(_outcomes, solver=make_solver(solver, **options), plans=plans)
    rows = _rows(solve, _chunks(problems, chunk, worker_count(jobs)), jobs)
    return _shown(rows, problems) if progress else rows


def _chunks(
    problems: Iterable[Problem], chunk: int | None, workers: int
) -> Iterator[Sequence[Problem]]:
    if isinstance(problems, Sequence):
        size = chunk or min(_fitting(problems), max(1, len(problems) // (LEAST_CHUNKS * workers)))
        for start in range(0, len(problems), size):
            yield problems[start : start + size]
        return
    remaining = iter(problems)
    for first in remaining:
        size = chunk or _fitting([first])
        yield [first, *islice(remaining, size - 1)]


def _fitting(problems: Sequence[Problem]) -> int:
    """Rows that make a chunk of `CHUNK_TOKENS`."""
    one = problems if hasattr(problems, "vocab_size") else next(iter(problems), None)
    return max(1, CHUNK_TOKENS // getattr(one, "vocab_size", 1))


def _outcomes(problems: Sequence[Problem], solver: Solver, plans: bool) -> list[Outcome]:
    return [_outcome(problems, place, solver, plans) for place in range(len(problems))]


def _outcome(problems: Sequence[Problem], place: int, solver: Solver, plans: bool) -> Outcome:
    try:
        solution = solver.solve(problems[place])
    except OTLPError as error:
        return error
    except Exception as error:
        return TaskError(f"{type(error).__name__}: {error}")
    return solution if plans else replace(solution, plan=None)


def _rows(solve: Any, chunks: Iterable[Sequence[Problem]], jobs: int | None) -> Iterator[Row]:
    row = 0
    for outcome in _each(solve, chunks, jobs):
        yield (Row(row, outcome) if isinstance(outcome, Solution) else Row(row, None, outcome))
        row += 1


def _each(solve: Any, chunks: Iterable[Sequence[Problem]], jobs: int | None) -> Iterator[Outcome]:
    """The outcomes of all rows; where a worker died of a chunk, those of its rows one by one."""
    sent: deque[Sequence[Problem]] = deque()

    def remembered() -> Iterator[Sequence[Problem]]:
        for chunk in chunks:
            sent.append(chunk)
            yield chunk

    for outcomes in in_order(solve, remembered(), jobs):
        chunk = sent.popleft()
        if not isinstance(outcomes, TaskError):
            yield from outcomes
        elif len(chunk) == 1:
            yield outcomes
        else:
            yield from _each(solve, (chunk[i : i + 1] for i in range(len(chunk))), jobs)


def _shown(rows: Iterator[Row], problems: Iterable[Problem]) -> Iterator[Row]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    total = len(problems) if isinstance(problems, Sequence) else None
    yield from track(
        rows, "solve_many", total, console=console, transient=True, disable=not console.is_terminal
    )
