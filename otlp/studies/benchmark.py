"""Timing: solvers over sizes and rows of a capture, as plain records.

The solver's parts and the certificate's are kept apart, and each record carries the objective's
error beside the time.  A solver is run on a size only if it takes the problem and if what it
needed on smaller sizes says that it can stay within the time limit; otherwise the reason is
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from otlp._solve import optimal_acceptance
from otlp.data.captures import Capture
from otlp.drafts import IID
from otlp.parallel.workers import in_order, in_this_process
from otlp.problem import Problem
from otlp.solution import Guarantee
from otlp.solvers.solver import Solver
from otlp.studies.attempt import attempt, warm
from otlp.timing import Timings


@dataclass(frozen=True)
class Size:
    """A row of the table: n drafts from the top k tokens (None: the whole vocabulary)."""

    k: int | None
    n: int


@dataclass(frozen=True)
class Record:
    """One solve.

    Attributes
    ----------
    row : int
        Of the capture.
    status, guarantee : str
        Names of the members of `Status` and `Guarantee`.
    acceptance : float
        NaN if there is no plan.
    error : float
        Optimal acceptance minus acceptance, NaN if there is no plan.
    marginal_error : float
        L1 distance of the output distribution from the target.
    timings : Timings
        Seconds by part.
    """

    row: int
    status: str
    guarantee: str
    acceptance: float
    error: float
    marginal_error: float
    timings: Timings


@dataclass(frozen=True)
class Cell:
    """A solver at a size, over all rows.

    Attributes
    ----------
    size : Size
    solver : str
    rows : int
        How many rows were asked for.
    skipped : str
        Why rows were left out, all or the last ones; empty if none were.
    records : tuple of Record
    """

    size: Size
    solver: str
    rows: int
    skipped: str = ""
    records: tuple[Record, ...] = ()

    @property
    def solved(self) -> tuple[Record, ...]:
        """The records that ended with a plan."""
        return tuple(r for r in self.records if r.guarantee != Guarantee.NONE.name)

    @property
    def partial(self) -> bool:
        """Whether means and medians are over fewer rows than were asked for."""
        return 0 < len(self.solved) < self.rows

    @property
    def success_rate(self) -> float:
        """Share of the rows that ended with a plan."""
        return len(self.solved) / len(self.records) if self.records else 0.0

    def milliseconds(self, part: str = "total") -> float:
        """Median milliseconds of a part or sum of `Timings` over the solved rows."""
        return 1e3 * float(median(getattr(r.timings, part) for r in self.solved))

    @property
    def acceptance(self) -> float:
        """Mean acceptance over the solved rows."""
        return fmean(r.acceptance for r in self.solved)

    @property
    def error(self) -> float:
        """Largest error of the objective over the solved rows."""
        return max(r.error for r in self.solved)


def benchmark(
    capture: Capture,
    sizes: Sequence[Size],
    solvers: Mapping[str, Solver],
    rows: Sequence[int],
    time_limit: float,
    temperature: float = 1.0,
    sampling: Mapping[str, Any] = MappingProxyType({}),
    jobs: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Cell]:
    """Time every solver at every size, one cell after the other.

    Parameters
    ----------
    capture : Capture
    sizes : sequence of Size
        Best in ascending order, so that small sizes predict large ones.
    solvers : mapping of str to Solver
        By what each is called, as `otlp.solvers.line_up` gives them.
    rows : sequence of int
        Rows of the capture.
    time_limit : float
        Seconds a solve, which those of `solvers` that take a limit have.
    temperature : float
        Of both models.
    sampling : mapping
        Cuts of both models, by name; see `otlp.captures.Capture.distributions`.
    jobs : int, optional
        Rows that are solved at the same time; see `otlp.parallel.workers.in_order`.  They slow each
        other down: the times are those of a busy machine.
    progress : callable
        Called with a label after each solver is warmed up, and after each solve or skip: in
        ``len(solvers) + len(sizes) * len(solvers) * len(rows)`` steps.

    Yields
    ------
    Cell
        Size by size, in the order of `solvers`.
    """
    cut = {"temperature": temperature, **sampling}
    small = small_problems(capture, **cut)
    paces: dict[str, float] = {}  # seconds a unit of work, by solver
    for name, solver in solvers.items():
        if in_this_process(jobs):
            _warm_up(name, solver, small)
        progress(f"warming up {name}")
    for size in sizes:
        problems = [_problem(capture, row, size, **cut) for row in rows]
        for name, solver in solvers.items():
            label = f"({size.k or capture.model_vocab_size}, {size.n}) {name}"
            reason = _too_slow(solver, problems[0], paces.get(name, 0.0), time_limit)
            records: list[Record] = []
            work = partial(_timed, name=name, solver=solver, time_limit=time_limit, small=small)
            tasks = [] if reason else zip(rows, problems, strict=True)
            done = in_order(work, tasks, jobs)
            for found, problem in zip(done, problems, strict=False):
                if not isinstance(found, Record):
                    reason = str(found)
                    break
                progress(label)
                records.append(found)
                seconds = found.timings.total
                paces[name] = seconds / max(solver.work(problem), 1.0)
                if seconds > time_limit:
                    reason = f"one solve took {seconds:.3g} s, limit {time_limit:g} s"
                    break
            for _ in rows[len(records) :]:
                progress(label)
            yield Cell(size, name, len(rows), reason, tuple(records))


_warm: set[str] = set()
"""Solvers that everything is compiled and started for in this process."""


def _timed(
    task: tuple[int, Problem], name: str, solver: Solver, time_limit: float, small: list[Problem]
) -> Record | str:
    """Time one solve, in the worker; or say why there is none."""
    row, problem = task
    _warm_up(name, solver, small)
    found = attempt(solver, problem)
    if found.solution is None:
        return found.reason
    if found.solution.timings.total > time_limit:
        _warm.discard(name)  # an engine that had to be stopped starts again before the next size
    solution = found.solution
    optimum = optimal_acceptance(problem)
    return Record(
        *(row, solution.status.name, solution.guarantee.name, solution.acceptance),
        *(optimum - solution.acceptance, solution.marginal_error, solution.timings),
    )


def _warm_up(name: str, solver: Solver, small: list[Problem]) -> None:
    if name not in _warm:
        warm(solver, small)
        _warm.add(name)


def small_problems(capture: Capture, **cut: Any) -> list[Problem]:
    """Problems of the first row to warm up with, one that is tiny and one that is not."""
    most = capture.kept or capture.vocab_size
    sizes = (Size(min(4, most), 2), Size(min(100, most), 3))
    return [_problem(capture, 0, size, **cut) for size in sizes]


def _problem(capture: Capture, row: int, size: Size, **cut: Any) -> Problem:
    target, draft = capture.distributions(row, top_k=size.k, **cut)
    return Problem(target, IID(draft, size.n))


def _too_slow(solver: Solver, problem: Problem, pace: float, time_limit: float) -> str:
    """Why the smaller sizes say that the limit will not do; empty if they do not."""
    if not solver.supports(problem):
        return ""
    expected = pace * solver.work(problem)
    if expected <= time_limit:
        return ""
    return f"expected about {expected:.3g} s from the sizes before, limit {time_limit:g} s"
