"""Common code of the reproductions: rows, methods, timing, tables and files."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Set before NumPy is imported: on small problems its threads only wait for each other, up to 100 ms
# on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import csr_array

import otlp
from otlp.cli.output import PlainConsole, progress, write_json
from otlp.data.captures import Capture
from otlp.drafts import TokenSets
from otlp.errors import EngineNotFoundError
from otlp.parallel.rows import CaptureRows
from otlp.reductions import NetworkReduction, Relaxation, RelaxedOTLP, RelaxedProgram, Support
from otlp.reductions.complementary_slackness import split
from otlp.solution import SolveError
from otlp.solvers import GlobalResolution, LinearProgram, Martingale, MaxFlow, Slackness
from otlp.solvers.engines import FLOW_ENGINES, graph_tool
from otlp.solvers.solver import Solver
from otlp.studies.attempt import without_compiling
from otlp.studies.compare import OPTIMUM
from otlp.studies.style import LOOK, look
from otlp.studies.sweep import Grid, sweep

REPOSITORY = Path(__file__).resolve().parents[2]
FIGURES = REPOSITORY / "docs" / "figures"
RESULTS = Path(__file__).parent / "results"

PAPER = json.loads(Path(__file__).with_name("paper.json").read_text())
"""Results of the paper: milliseconds and success rates of Tables 1 and 3 by (k, n), Table 2."""

console = PlainConsole(width=172, highlight=False)
rcParams.update({**LOOK, "figure.constrained_layout.use": True})

SAME = {
    "LP": "linear-program",
    "optimized max-flow": "slackness",
    "global resolution": "global-resolution",
    "global resolution as published": "global-resolution",
    "whole published plan": "global-resolution",
}
"""Names of the equivalent solvers of the paper's methods."""


def look_of(label: str) -> dict[str, Any]:
    """Return colour and marker: hollow and dashed as in the paper, larger for the smaller tau."""
    name = label.partition(",")[0]
    style = look(SAME.get(name, name))
    if name in SAME or "all tuples" in label:
        style |= {"fillstyle": "none", "linestyle": ":" if "graph-tool" in label else "--"}
    return style | ({"markersize": 8.0} if label.endswith("0.0001") else {})


@dataclass(frozen=True)
class Run:
    """One solve: seconds, acceptance (NaN without a plan), and status."""

    seconds: float
    acceptance: float
    status: str

    @property
    def solved(self) -> bool:
        """Whether the solve returned a plan or a value."""
        return self.status == "SOLVED"


@dataclass(frozen=True)
class Method:
    """A solution method: its label, its run, and its number of arcs (or tuples) for a problem."""

    label: str
    run: Callable[[otlp.Problem], Run]
    size: Callable[[otlp.Problem], float]


def problems(
    capture: Capture, rows: Sequence[int], k: int, n: int, temperature: float = 1.0
) -> Iterator[otlp.Problem]:
    """Yield the OTLP of each row: target at `temperature`, top k tokens of the draft at 1."""
    for row in rows:
        p, q = capture.distributions(row, temperature, 1.0, k if k < widest(capture) else None)
        yield otlp.Problem(p, otlp.IID(q, n))


def widest(capture: Capture) -> int:
    """Return the number of draft tokens: V, or the number of stored tokens."""
    return capture.kept or capture.vocab_size


def spread(capture: Capture, rows: int) -> list[int]:
    """Return rows spread evenly over the capture, and thus over its passages."""
    wanted = min(rows, len(capture))
    return sorted({round(at) for at in np.linspace(0, len(capture) - 1, wanted)})


def describe(capture: Capture, rows: int) -> str:
    """Return kind and vocabulary of a capture, and the number of rows of `spread`."""
    kind = "SYNTHETIC" if capture.synthetic else "captured"
    size = capture.vocab_size - (capture.kept is not None)
    return f"{kind}, V = {size:,}, {min(rows, len(capture))} rows"


def with_solver(label: str, solver: Solver) -> Method:
    """Return a solver of the library, with the time of the plan without the certificate."""

    def run(problem: otlp.Problem) -> Run:
        solution = solver.solve(problem)
        return Run(solution.timings.plan, solution.acceptance, solution.status.name)

    def size(problem: otlp.Problem) -> float:
        return solver.work(problem) if solver.supports(problem) else math.inf

    return Method(label, run, size)


def unmerged_lp(time_limit: float) -> Method:
    """Return the relaxed OTLP over all tuples with SciPy's HiGHS, as in the paper (Appendix M)."""

    def optimum(problem: otlp.Problem) -> float:
        program, _ = RelaxedProgram().apply(_relaxed(problem))
        limits = np.concatenate((program.row_mass, program.column_mass))
        variables = np.arange(program.reward.size)
        rows = np.concatenate((program.rows, program.row_mass.size + program.columns))
        entries = (np.ones(rows.size), (rows, np.tile(variables, 2)))
        result = linprog(
            -program.reward,
            A_ub=csr_array(entries, shape=(limits.size, variables.size)),
            b_ub=limits,
            method="highs",
            options={"time_limit": time_limit},
        )
        return -float(result.fun) if result.status == 0 else math.nan

    return _over_tuples("LP, all tuples (SciPy HiGHS)", optimum)


def unmerged_flow(engine: str = "ortools") -> Method:
    """Return one maximum flow over all tuples, as in the paper's section 5.2."""
    return _over_tuples(
        f"max-flow, all tuples ({engine})", lambda problem: _flow_value(_relaxed(problem), engine)
    )


def unmerged_slackness(engine: str = "ortools") -> Method:
    """Return a maximum flow for each of the two systems, over all tuples (section 5.3)."""

    def optimum(problem: otlp.Problem) -> float:
        small, _ = Support().apply(problem)
        subset = split(small).inner.subset
        relaxed, _ = Relaxation().apply(small)
        inside = np.logical_and.reduceat(
            subset[relaxed.groups.members], relaxed.groups.offsets[:-1]
        )
        value = 0.0
        for side, groups in ((~subset, ~inside), (subset, inside)):
            system = _restrict(relaxed, side, groups)
            if len(system.groups):
                value += _flow_value(system, engine)
        return value

    return _over_tuples(f"optimized max-flow, all tuples ({engine})", optimum)


def _over_tuples(label: str, optimum: Callable[[otlp.Problem], float]) -> Method:
    """Return a timed method for the optimal value with separate tuples; NaN: time limit."""

    def run(problem: otlp.Problem) -> Run:
        start = time.perf_counter()
        value = optimum(problem)
        status = "TIME_LIMIT" if math.isnan(value) else "SOLVED"
        return Run(time.perf_counter() - start, value, status)

    return Method(label, run, lambda problem: problem.drafts.tuple_count() * (problem.n + 1))


def _relaxed(problem: otlp.Problem) -> RelaxedOTLP:
    small, _ = Support().apply(problem)
    return Relaxation().apply(small)[0]


def _restrict(
    relaxed: RelaxedOTLP, side: NDArray[np.bool_], chosen: NDArray[np.bool_]
) -> RelaxedOTLP:
    """Keep the chosen groups, and only their members on one side."""
    groups = relaxed.groups
    keep = chosen[groups.rows] & side[groups.members]
    lengths = np.bincount(groups.rows[keep], minlength=len(groups))[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return RelaxedOTLP(
        relaxed.target, TokenSets(groups.members[keep], offsets, groups.mass[chosen])
    )


def _flow_value(relaxed: RelaxedOTLP, engine: str) -> float:
    network, _ = NetworkReduction().apply(relaxed)
    return float(FLOW_ENGINES[engine](network).primal[network.middle].sum())


def conditional_of(label: str, solver: GlobalResolution) -> Method:
    """Return Algorithm 1 as in the paper: for one drafted tuple, from one of the systems."""

    def run(problem: otlp.Problem) -> Run:
        tokens = problem.drafts.sample(np.random.default_rng(0))
        start = time.perf_counter()
        try:
            solver.prepare(problem, otlp.Guarantee.APPROXIMATE).conditional(tokens)
            status = "SOLVED"
        except SolveError as error:
            status = error.solution.status.name
        return Run(time.perf_counter() - start, math.nan, status)

    return Method(label, run, lambda problem: 0.0)


def measure(
    method: Method, cases: Sequence[otlp.Problem], most: float, budget: float, repeats: int = 2
) -> list[Run]:
    """Solve the cases in order within `budget` seconds, with the best of `repeats` runs each.

    Returns an empty list if the first case has more than `most` arcs; else runs at least one case.
    """
    if not cases or method.size(cases[0]) > most:
        return []
    runs = []
    end = time.perf_counter() + budget
    for case in cases:
        tries = [without_compiling(partial(method.run, case))]
        while len(tries) < repeats and time.perf_counter() + tries[0].seconds < end:
            tries.append(method.run(case))
        runs.append(min(tries, key=lambda run: run.seconds))
        if time.perf_counter() > end:
            break
    return runs


def warm(methods: Sequence[Method], capture: Capture) -> None:
    """Compile and load all methods before the first timing."""
    for n in (2, 3):
        case = next(problems(capture, [0], 5, n))
        for method in methods:
            if method.size(case) < math.inf:
                method.run(case)


def milliseconds(runs: Sequence[Run]) -> float:
    """Return the median milliseconds of the successful runs."""
    seconds = [run.seconds for run in runs if run.solved]
    return 1e3 * float(np.median(seconds)) if seconds else math.nan


def success(runs: Sequence[Run]) -> float:
    return sum(run.solved for run in runs) / len(runs) if runs else math.nan


def shown(value: float) -> str:
    """Format a number for a table; "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:#.3g}".rstrip(".")


def write(name: str, content: dict[str, Any], figure: Figure | None = None) -> None:
    """Store a result as JSON, and its figure for the documentation."""
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    write_json(RESULTS / f"{name}.json", {"machine": machine, **content})
    console.print(f"wrote {(RESULTS / f'{name}.json').relative_to(REPOSITORY)}", style="dim")
    if figure is not None:
        path = FIGURES / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        console.print(f"wrote {path.relative_to(REPOSITORY)}", style="dim")


def mean_optimum(instances: Iterable[otlp.Problem]) -> float:
    """Return the mean optimal acceptance, by subset selection (Theorem 3.1)."""
    return float(np.mean([otlp.optimal_acceptance(case) for case in instances]))


Curves = dict[str, list[float]]
"""Values over n, by k."""


def mean_optima(
    capture: Capture, rows: int, grid: Grid, label: str, jobs: int | None
) -> dict[tuple[str, float, int], list[float]]:
    """Return mean optimal acceptances over n by scheme, target temperature and k, in one sweep."""
    chosen = spread(capture, rows)
    steps = len(chosen) * len(grid.settings)
    with progress(label, steps) as step:
        points = sweep(CaptureRows(capture, chosen), grid, progress=step, jobs=jobs)
    found: dict[tuple[str, float, int], list[float]] = {}
    for point in points:
        if point.rule == OPTIMUM:
            assert point.rows == len(chosen), point.reason
            setting = point.setting
            key = (setting.scheme, setting.temperature, setting.top_k or widest(capture))
            found.setdefault(key, []).append(point.acceptance.mean)
    return found


def top_k(capture: Capture, ks: Iterable[int]) -> list[int | None]:
    """Return the sizes for a grid: None for all draft tokens, without larger sizes."""
    size = widest(capture)
    return [k if k < size else None for k in dict.fromkeys(ks) if k <= size]


def print_over_n(
    curves: Mapping[str, Curves], counts: Sequence[int], title: str, show: Callable[[float], str]
) -> None:
    """Print a table for each name, with one line per k and the values over n."""
    for name, by_k in curves.items():
        table = Table("k", *(f"n={n}" for n in counts), title=f"{title}, {name}")
        for k, values in by_k.items():
            table.add_row(k, *map(show, values))
        console.print(table)


def draw_over_n(
    curves: Mapping[str, Curves],
    counts: Sequence[int],
    label: str,
    size: tuple[float, float] = (9.0, 3.8),
) -> Figure:
    """Draw a panel for each name, with one line per k and the values over n."""
    figure = Figure(figsize=size)
    panels = figure.subplots(1, len(curves), sharey=True)
    ks = list(dict.fromkeys(k for by_k in curves.values() for k in by_k))
    handles = {}
    for axes, (name, by_k) in zip(panels, curves.items(), strict=True):
        for k, values in by_k.items():
            (handles[k],) = axes.plot(counts, values, **look(k, ks))
        axes.set(title=name, xlabel="n")
        axes.set_xticks([n for n in counts if n % 2 == 0])
    figure.axes[0].set_ylabel(label)
    labels = [f"top {int(k):,}" for k in handles]
    figure.legend(handles.values(), labels, loc="outside right center")
    return figure


def engines() -> list[str]:
    """Return the installed engines for maximum flows."""
    try:
        graph_tool.load()
    except EngineNotFoundError as error:
        console.print(f"skipping graph-tool: {error}", style="dim")
        return ["ortools"]
    return list(FLOW_ENGINES)


def paper_methods(time_limit: float) -> list[Method]:
    """Return the five methods of the paper's tables, with each installed engine."""
    installed = engines()
    return [
        unmerged_lp(time_limit),
        *map(unmerged_flow, installed),
        *map(unmerged_slackness, installed),
        *(
            conditional_of(f"global resolution, tau {tau:g}", GlobalResolution.published(tau))
            for tau in TAUS
        ),
    ]


def own_methods() -> list[Method]:
    """Return the library's counterparts: tuples merged by set, lumps instead of truncation."""
    return [
        with_solver("linear-program", LinearProgram(time_limit=10.0)),
        with_solver("max-flow", MaxFlow()),
        with_solver("slackness", Slackness()),
        *(with_solver(f"global-resolution, tau {tau:g}", GlobalResolution(tau)) for tau in TAUS),
        with_solver("martingale", Martingale()),
    ]


TAUS = (1e-3, 1e-4)
