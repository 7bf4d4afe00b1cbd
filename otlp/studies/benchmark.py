"""Times of solvers for several problem sizes and rows of a capture.

Records separate the time of the solver from the time of the certificate and include the error of
the objective.  A solver runs on a size only if it supports the problem and if its times on smaller
sizes predict that it stays within the time limit; otherwise the reason is recorded.
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
from otlp.parallel.workers import in_order
from otlp.problem import Problem
from otlp.solution import Guarantee
from otlp.solvers.solver import Solver
from otlp.studies.attempt import attempt, small_problems, warm
from otlp.timing import Timings


@dataclass(frozen=True)
class Size:
    """Problem size: n drafts from the top k tokens (None: the whole vocabulary)."""

    k: int | None
    n: int


@dataclass(frozen=True)
class Record:
    """One solve.

    Attributes
    ----------
    row : int
        Row of the capture.
    status, guarantee : str
        Names of the members of `Status` and `Guarantee`.
    acceptance : float
        NaN if there is no plan.
    error : float
        Optimal acceptance minus acceptance, NaN if there is no plan.
    marginal_error : float
        L1 distance between the output distribution and the target.
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
    """Solves of one solver at one size, over all rows.

    Attributes
    ----------
    size : Size
    solver : str
    rows : int
        Number of requested rows.
    skipped : str
        Reason why all rows or the last rows were skipped; empty if no row was skipped.
    records : tuple of Record
    """

    size: Size
    solver: str
    rows: int
    skipped: str = ""
    records: tuple[Record, ...] = ()

    @property
    def solved(self) -> tuple[Record, ...]:
        """Records with a plan."""
        return tuple(r for r in self.records if r.guarantee != Guarantee.NONE.name)

    @property
    def partial(self) -> bool:
        """Whether means and medians are over fewer rows than requested."""
        return 0 < len(self.solved) < self.rows

    @property
    def success_rate(self) -> float:
        """Share of the records that have a plan."""
        return len(self.solved) / len(self.records) if self.records else 0.0

    def milliseconds(self, part: str = "total") -> float:
        """Return the median over the solved rows of an attribute of `Timings`, in milliseconds."""
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
    """Time every solver at every size.

    Parameters
    ----------
    capture : Capture
    sizes : sequence of Size
        Preferably in ascending order, so that small sizes predict the times of large sizes.
    solvers : mapping of str to Solver
        Solvers by name, as returned by `otlp.solvers.line_up`.
    rows : sequence of int
        Rows of the capture.
    time_limit : float
        Seconds per solve; solvers that accept a time limit must have been made with this limit.
    temperature : float
        Temperature of both models.
    sampling : mapping
        Truncation of both models, by name; see `otlp.captures.Capture.distributions`.
    jobs : int, optional
        Number of rows solved in parallel; see `otlp.parallel.workers.in_order`.  Parallel solves
        slow each other down: the times are those of a busy machine.
    progress : callable
        Called with a label after each solve or skip, in total
        ``len(sizes) * len(solvers) * len(rows)`` times.

    Yields
    ------
    Cell
        Size by size, in the order of `solvers`.
    """
    options = {"temperature": temperature, **sampling}
    paces: dict[str, float] = {}  # seconds per unit of work, by solver
    for size in sizes:
        problems = [_problem(capture, row, size, **options) for row in rows]
        for name, solver in solvers.items():
            label = f"({size.k or capture.model_vocab_size}, {size.n}) {name}"
            reason = _too_slow(solver, problems[0], paces.get(name, 0.0), time_limit)
            records: list[Record] = []
            work = partial(_time_row, name=name, solver=solver, time_limit=time_limit)
            tasks = [] if reason else zip(rows, problems, strict=True)
            done = in_order(work, tasks, jobs)
            for result, problem in zip(done, problems, strict=False):
                if not isinstance(result, Record):
                    reason = str(result)
                    break
                progress(label)
                records.append(result)
                seconds = result.timings.total
                paces[name] = seconds / max(solver.work(problem), 1.0)
                if seconds > time_limit:
                    reason = f"one solve took {seconds:.3g} s, limit {time_limit:g} s"
                    break
            for _ in rows[len(records) :]:
                progress(label)
            yield Cell(size, name, len(rows), reason, tuple(records))


_loaded: set[str] = set()
"""Solvers whose kernels and engines are loaded in this process."""


def _time_row(
    task: tuple[int, Problem], name: str, solver: Solver, time_limit: float
) -> Record | str:
    """Time one solve in the worker; return the reason if the solver fails."""
    row, problem = task
    warm_up(name, solver)
    result = attempt(solver, problem)
    if result.solution is None:
        return result.reason
    if result.solution.timings.total > time_limit:
        _loaded.discard(name)  # the engine was stopped: restart it before the next size is timed
    solution = result.solution
    optimum = optimal_acceptance(problem)
    return Record(
        *(row, solution.status.name, solution.guarantee.name, solution.acceptance),
        *(optimum - solution.acceptance, solution.marginal_error, solution.timings),
    )


def warm_up(name: str, solver: Solver) -> None:
    """Load the kernels and the engine of a solver and those of the optimum, once per process."""
    if name not in _loaded:
        warm(solver)
        for problem in small_problems():
            optimal_acceptance(problem)
        _loaded.add(name)


def _problem(capture: Capture, row: int, size: Size, **cut: Any) -> Problem:
    target, draft = capture.distributions(row, top_k=size.k, **cut)
    return Problem(target, IID(draft, size.n))


def _too_slow(solver: Solver, problem: Problem, pace: float, time_limit: float) -> str:
    """Return a reason if the predicted time exceeds the limit, else an empty string."""
    if not solver.supports(problem):
        return ""
    expected = pace * solver.work(problem)
    if expected <= time_limit:
        return ""
    return f"predicted about {expected:.3g} s from smaller sizes, limit {time_limit:g} s"
