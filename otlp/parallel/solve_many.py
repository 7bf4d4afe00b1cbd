"""Solve many problems with one solver; yields solutions or errors in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, repeat, tee
from time import perf_counter
from typing import Any, Literal, TypeAlias

from otlp.checks import whole_number
from otlp.data.capture import Capture
from otlp.errors import InvalidInputError, OTLPError, TaskError
from otlp.parallel.problems import CaptureProblems, RowProblems
from otlp.parallel.workers import in_order, in_this_process, one_by_one
from otlp.problem import Problem
from otlp.showing.html import html_table
from otlp.solution import Solution
from otlp.solvers.by_name import make_solver
from otlp.solvers.solver import Solver

Outcome: TypeAlias = Solution | OTLPError
Solved: TypeAlias = tuple[list[Outcome], float]

CHUNK_SECONDS = 0.1
"""Target time of a chunk of rows in seconds, long compared with its transfer to a worker."""

CHUNK_TOKENS = 2**18
"""Maximum rows times V of a chunk whose rows or plans are transferred; plans take about 16 MB."""

THREAD_TOKENS = 2**15
"""Smallest V for which solvers that release the GIL run in threads.  For smaller V too much of a
solve is Python, which blocks other threads; plans are then computed in this process, because the
transfer of a plan costs as much as its computation."""


@dataclass(frozen=True, eq=False)
class Row:
    """Result for one problem.

    Attributes
    ----------
    row : int
        Index of the problem among those passed, from 0.
    solution : Solution or None
        Solution; None if an error was raised.
    error : OTLPError or None
        Error; None if there is a solution.

    Examples
    --------
    >>> import otlp
    >>> problems = otlp.SyntheticProblems(rows=2, vocab_size=1000, n=2)
    >>> row = next(iter(otlp.solve_many(problems)))
    >>> row.row, row.status, row.error is None, row.acceptance == row.solution.acceptance
    (0, 'SOLVED', True, True)
    """

    row: int
    solution: Solution | None
    error: OTLPError | None = None

    def __repr__(self) -> str:
        """Return the status and the solution or the error in one line."""
        return f"<Row {self.row}: {self._summary()}>"

    def _repr_html_(self) -> str:
        if self.solution is not None:
            return f"<div>Row {self.row}</div>{self.solution._repr_html_()}"
        return html_table(f"Row {self.row}", {self.status: self.reason})

    def _summary(self) -> str:
        return f"{self.status}: {self.reason}" if self.solution is None else str(self.solution)

    @property
    def status(self) -> str:
        """Name of the `Status` of the solution, or of the type of the error."""
        return type(self.error).__name__ if self.solution is None else self.solution.status.name

    @property
    def reason(self) -> str:
        """Message of the solution or of the error."""
        return str(self.error) if self.solution is None else self.solution.message

    @property
    def acceptance(self) -> float:
        """Acceptance of the plan; NaN without a plan."""
        return float("nan") if self.solution is None else self.solution.acceptance


def solve_many(
    problems: Iterable[Problem],
    solver: str | Solver = "auto",
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    chunk: int | None = None,
    progress: bool = False,
    plans: bool = True,
    **options: Any,
) -> Iterator[Row]:
    """Solve many problems; an error of one problem does not stop the others.

    Parameters
    ----------
    problems : iterable of Problem
        `otlp.CaptureProblems`, `otlp.SyntheticProblems`, a list or a generator.
    solver : str or Solver
        As in `otlp.solve`.
    jobs : int, optional
        Number of workers on this machine, by default 1, which is this process; with `executor`,
        the number of workers of the executor.
    executor : concurrent.futures.Executor, optional
        Executor that solves chunks of rows instead of workers on this machine; it is not shut down.
        Processes, threads, ``get_executor(pure=False)`` of a Dask client, loky and mpi4py executors
        are supported.
    chunk : int, optional
        Number of rows sent to a worker together; by default as many as take 0.1 s, or fewer if rows
        or plans are large.
    progress : bool
        Whether to show a progress bar on standard error, if it is a terminal.
    plans : bool
        Whether to keep the plans.  A row without its plan uses V bytes, and V/8 in its transfer.
    **options
        Hyperparameters of the named solver.

    Yields
    ------
    Row
        One row per problem, in order; except for timings, rows do not depend on workers and chunks.

    Raises
    ------
    UnknownSolverError, InvalidInputError
        At the call, if an argument is invalid.  Errors of a problem are in its row.
    ExecutorError
        At a row, if the executor is shut down, loses a worker and accepts no more tasks, or
        completes no task within 120 s.

    Notes
    -----
    Chunks in progress and results not yet consumed are in memory, at most four chunks per worker.
    Closing or interrupting the iterator ends the workers.

    Examples
    --------
    >>> import otlp
    >>> problems = otlp.CaptureProblems(otlp.captures.builtin(), n=4)
    >>> rows = otlp.solve_many(problems[:3])
    >>> [(row.row, row.status, round(row.acceptance, 6)) for row in rows]
    [(0, 'SOLVED', 0.95544), (1, 'SOLVED', 0.999982), (2, 'SOLVED', 0.026562)]
    """
    _check_problems(problems)
    for name, value in (("progress", progress), ("plans", plans)):
        if not isinstance(value, bool):
            raise InvalidInputError(f"{name} must be True or False, got {type(value).__name__}")
    if chunk is not None:
        chunk = min(whole_number(chunk, "chunk"), sys.maxsize)
    made = make_solver(solver, **options)
    total = len(problems) if isinstance(problems, Sequence) else None
    rows: Iterator[Row]
    if in_this_process(jobs, executor):
        # Without chunks, so that the memory of a plan is reused for the next plan.
        single = _with_places(problems)
        rows = (_row(row, _solve(*at, made, plans)) for row, at in enumerate(single))
    else:
        rows = _in_chunks(problems, made, plans, chunk, jobs, executor)
    return _with_progress(rows, total) if progress else rows


def _check_problems(problems: object) -> None:
    if isinstance(problems, Capture):
        raise InvalidInputError(
            "problems must be an iterable of otlp.Problem, got a Capture; pass "
            "otlp.CaptureProblems(capture, n=4), with the number of drafts and other settings"
        )
    refused = InvalidInputError(
        "problems must be an iterable of otlp.Problem, such as otlp.CaptureProblems(capture, "
        f"n=4), got {type(problems).__name__}"
    )
    if not isinstance(problems, Iterable) or isinstance(problems, str | bytes | Mapping):
        raise refused
    try:
        iter(problems)
    except TypeError:  # A 0-dimensional array is an instance of Iterable, but not iterable.
        raise refused from None


def _in_chunks(
    problems: Iterable[Problem],
    solver: Solver,
    plans: bool,
    chunk: int | None,
    jobs: int | None,
    executor: Executor | None,
) -> Iterator[Row]:
    """Solve in chunks; in threads if the solver releases the GIL and transfers would be slow."""
    some = problems
    if not isinstance(some, Sequence):
        remaining = iter(problems)
        some = list(islice(remaining, 1))
        problems = chain(some, remaining)
    vocab_size, compiled = _size_and_compiled(solver, some)
    threads = compiled and vocab_size >= THREAD_TOKENS
    if executor is not None:
        threads = isinstance(executor, ThreadPoolExecutor)
    elif compiled and plans and not threads:
        jobs = 1
    most = sys.maxsize
    if threads or plans or not (isinstance(problems, RowProblems) and problems.by_reference):
        most = max(1, CHUNK_TOKENS // vocab_size)
    chunks = _Chunks(problems, chunk, most)
    submitted, pending = tee(chunks)
    solve = partial(_solve_chunk, solver=solver, plans=plans)
    prefer: Literal["threads", "processes"] = "threads" if threads else "processes"
    results = in_order(solve, submitted, jobs, executor=executor, prefer=prefer)
    return _rows(zip(results, pending, strict=True), chunks, solve)


def _size_and_compiled(solver: Solver, problems: Sequence[Problem]) -> tuple[int, bool]:
    """Return V of the first problem (1 if unknown), and whether its solver releases the GIL."""
    vocab_size = 1
    if isinstance(problems, CaptureProblems):
        vocab_size = problems.capture.vocab_size
    with suppress(Exception):  # The row will report the error.
        vocab_size = max(1, problems[0].vocab_size)
        solver = solver.resolve(problems[0])
    return vocab_size, solver.releases_gil


def _with_places(problems: Iterable[Problem]) -> Iterator[tuple[Sequence[Problem], int]]:
    """Yield the sequence and the index of each problem, which is built when it is solved."""
    if isinstance(problems, Sequence):
        return zip(repeat(problems), range(len(problems)))
    return (([problem], 0) for problem in problems)


class _Chunks:
    """Problems in chunks, whose size adapts to the time of the last chunk."""

    def __init__(self, problems: Iterable[Problem], fixed: int | None, most: int) -> None:
        self.problems, self.fixed, self.most = problems, fixed, most
        self.size = fixed or 1

    def __iter__(self) -> Iterator[Sequence[Problem]]:
        if isinstance(self.problems, Sequence):
            start = 0
            while start < len(self.problems):
                stop = start + self.size
                yield self.problems[start:stop]
                start = stop
        else:
            remaining = iter(self.problems)
            while chunk := list(islice(remaining, self.size)):
                yield chunk

    def adapt(self, rows: int, seconds: float) -> None:
        """Set the chunk size from the time in seconds for a number of rows."""
        if self.fixed is None:
            self.size = max(1, min(self.most, int(CHUNK_SECONDS * rows / max(seconds, 1e-9))))


def _solve_chunk(problems: Sequence[Problem], solver: Solver, plans: bool) -> Solved:
    """Return the outcomes and the total time in seconds."""
    start = perf_counter()
    outcomes = [_solve(problems, place, solver, plans) for place in range(len(problems))]
    return outcomes, perf_counter() - start


def _solve(problems: Sequence[Problem], place: int, solver: Solver, plans: bool) -> Outcome:
    try:
        solution = solver.solve(problems[place])
    except OTLPError as error:
        return error
    except Exception as error:
        return TaskError(f"{type(error).__name__}: {error}")
    return solution if plans else replace(solution, plan=None)


def _rows(
    results: Iterable[tuple[Solved | TaskError, Sequence[Problem]]],
    chunks: _Chunks,
    solve: Callable[[Sequence[Problem]], Solved],
) -> Iterator[Row]:
    row = 0
    for result, chunk in results:
        outcomes: Iterable[Outcome]
        if isinstance(result, TaskError):
            outcomes = _one_by_one(chunk, result, solve)
        else:
            outcomes, seconds = result
            chunks.adapt(len(chunk), seconds)
        for outcome in outcomes:
            yield _row(row, outcome)
            row += 1


def _row(row: int, outcome: Outcome) -> Row:
    return Row(row, outcome) if isinstance(outcome, Solution) else Row(row, None, outcome)


def _one_by_one(
    chunk: Sequence[Problem], error: TaskError, solve: Callable[[Sequence[Problem]], Solved]
) -> Iterator[Outcome]:
    """Solve the rows of a chunk whose worker died separately, to find the row that is the cause."""
    if len(chunk) == 1:
        yield error
        return
    for result in one_by_one(solve, (chunk[i : i + 1] for i in range(len(chunk)))):
        yield result if isinstance(result, TaskError) else result[0][0]


def _with_progress(rows: Iterator[Row], total: int | None) -> Iterator[Row]:
    from rich.console import Console
    from rich.progress import track

    errors = Console(stderr=True)
    hidden = not errors.is_terminal
    yield from track(rows, "solving", total, console=errors, transient=True, disable=hidden)
