"""Many problems, one solver: problems in, solutions or errors out, in order."""

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
"""Time that a chunk of rows should take: long beside the time to send it to a worker."""

CHUNK_TOKENS = 2**18
"""Most tokens of a chunk, rows times V, that rows or plans are sent of: plans take some 16 MB."""

THREAD_TOKENS = 2**15
"""V from which on solvers whose compiled code needs no interpreter run in threads.  Below, too much
of a solve is Python, which threads wait for; and plans are found in this process, since to send
one costs as much as to find it."""


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
        """Say what became of it in one line."""
        return f"<Row {self.row}: {self._said()}>"

    def _repr_html_(self) -> str:
        if self.solution is not None:
            return f"<div>Row {self.row}</div>{self.solution._repr_html_()}"
        return html_table(f"Row {self.row}", {self.status: self.reason})

    def _said(self) -> str:
        return f"{self.status}: {self.reason}" if self.solution is None else str(self.solution)

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
    executor: Executor | None = None,
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
        Workers on this machine, by default this process alone; beside an executor, how many
        workers it has.
    executor : concurrent.futures.Executor, optional
        Where chunks of rows are solved in place of workers of our own; it is left running.
        Processes, threads, a Dask client's ``get_executor(pure=False)``, those of loky and mpi4py.
    chunk : int, optional
        Rows that are sent to a worker together; by default as many as take 0.1 s, or fewer where
        they or their plans are large.
    progress : bool
        Show a bar on standard error, if that is a terminal.
    plans : bool
        Keep the plans.  A row without its plan takes V bytes, and is sent from a worker in V/8.
    **options
        Hyperparameters of the named solver.

    Yields
    ------
    Row
        One for each problem, in order; the same whatever the workers and chunks, but for timings.

    Raises
    ------
    UnknownSolverError, InvalidInputError
        At once, if it is this call that is wrong; of a problem it is the row that says so.

    ExecutorError
        At a row, if the executor is shut down, loses a worker and takes no more, or does nothing
        in 120 s.

    Notes
    -----
    In memory are the chunks that are under way or not yet asked for, at most four a worker.
    Closing the iterator, or interrupting it, ends the workers.

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
            raise InvalidInputError(f"{name} is a {type(value).__name__}: it must be True or False")
    if chunk is not None:
        chunk = min(whole_number(chunk, "chunk"), sys.maxsize)
    made = make_solver(solver, **options)
    total = len(problems) if isinstance(problems, Sequence) else None
    rows: Iterator[Row]
    if in_this_process(jobs, executor):
        # without chunks, so that the memory of one plan does for the next
        single = _with_places(problems)
        rows = (_row(row, _solve(*at, made, plans)) for row, at in enumerate(single))
    else:
        rows = _in_chunks(problems, made, plans, chunk, jobs, executor)
    return _with_progress(rows, total) if progress else rows


def _check_problems(problems: object) -> None:
    if isinstance(problems, Capture):
        raise InvalidInputError(
            "problems is a Capture: say how tokens are drafted, as in "
            "otlp.CaptureProblems(capture, n=4)"
        )
    refused = InvalidInputError(
        f"problems is a {type(problems).__name__}: it must be an iterable of otlp.Problem, "
        "such as otlp.CaptureProblems(capture, n=4)"
    )
    if not isinstance(problems, Iterable) or isinstance(problems, str | bytes | Mapping):
        raise refused
    try:
        iter(problems)
    except TypeError:  # an array without dimensions calls itself an iterable
        raise refused from None


def _in_chunks(
    problems: Iterable[Problem],
    solver: Solver,
    plans: bool,
    chunk: int | None,
    jobs: int | None,
    executor: Executor | None,
) -> Iterator[Row]:
    """Rows by chunks, in threads where compiled code solves what would be long on its way."""
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
    asked, given = tee(chunks)
    solve = partial(_solve_chunk, solver=solver, plans=plans)
    prefer: Literal["threads", "processes"] = "threads" if threads else "processes"
    results = in_order(solve, asked, jobs, executor=executor, prefer=prefer)
    return _rows(zip(results, given, strict=True), chunks, solve)


def _size_and_compiled(solver: Solver, problems: Sequence[Problem]) -> tuple[int, bool]:
    """V of the first problem, or 1, and whether compiled code solves it."""
    vocab_size = 1
    if isinstance(problems, CaptureProblems):
        vocab_size = problems.capture.vocab_size
    with suppress(Exception):  # the row will say it
        vocab_size = max(1, problems[0].vocab_size)
        solver = solver.resolve(problems[0])
    return vocab_size, solver.releases_gil


def _with_places(problems: Iterable[Problem]) -> Iterator[tuple[Sequence[Problem], int]]:
    """Each problem's sequence, and its place there: it is built when it is solved."""
    if isinstance(problems, Sequence):
        return zip(repeat(problems), range(len(problems)))
    return (([problem], 0) for problem in problems)


class _Chunks:
    """Problems in chunks, of a size that adapts to the time that the last ones took."""

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
        """Set the size by the time that some rows took."""
        if self.fixed is None:
            self.size = max(1, min(self.most, int(CHUNK_SECONDS * rows / max(seconds, 1e-9))))


def _solve_chunk(problems: Sequence[Problem], solver: Solver, plans: bool) -> Solved:
    """The outcomes, and how long they took in seconds."""
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
    """Solve a chunk that a worker died of, to tell which row it was."""
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
