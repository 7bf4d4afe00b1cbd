"""Times of the parts of a solve are assigned to the part that spends them."""

from __future__ import annotations

import runpy
from dataclasses import astuple
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

import otlp
from otlp import reductions, timing
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals, TablePlan
from otlp.solvers import SOLVERS
from otlp.timing import Stopwatch, Timings
from tests.processes import run_python

TARGET, DRAFT = [0.1, 0.6, 0.2, 0.1], [0.5, 0.3, 0.2, 0.0]
PROBLEMS = [
    otlp.Problem(TARGET, otlp.IID(DRAFT, n=2)),
    otlp.Problem(TARGET, otlp.IID(DRAFT, n=1)),
    otlp.Problem(TARGET, otlp.WithoutReplacement(DRAFT, n=2)),
    otlp.Problem(TARGET, otlp.Greedy(DRAFT, n=2)),
    otlp.Problem(TARGET, otlp.Hub(DRAFT)),
    otlp.Problem(TARGET, otlp.Explicit([[0, 1], [2, 3]], [0.4, 0.6])),
]
PARTS = {
    "linear-program": {"reduce", "build", "solve", "recover"},
    "max-flow": {"reduce", "build", "solve", "recover"},
    "slackness": {"reduce", "build", "solve", "recover"},
    "global-resolution": {"reduce", "solve", "recover"},
    "orderings": {"reduce", "solve", "recover"},
    "random-ranks": {"reduce", "solve", "recover"},
    "random-weights": {"reduce", "solve", "recover"},
}
"""Parts of solvers with reductions; all other solvers have only `solve`."""

MOMENT = 0.05


def spent(timings: Timings) -> set[str]:
    """Return the parts of the plan with nonzero time."""
    parts = {name for name, seconds in vars(timings).items() if seconds > 0.0}
    return parts - {"marginals", "bound", "load"}


def wait() -> None:
    end = perf_counter() + MOMENT
    while perf_counter() < end:
        pass


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_is_charged_for_what_it_does(name: str) -> None:
    solver = SOLVERS[name]()
    taken = [problem for problem in PROBLEMS if solver.supports(problem)]
    assert taken
    for problem in taken:
        solution = solver.solve(problem)
        timings = solution.timings
        assert min(astuple(timings)) >= 0.0
        assert spent(timings) == PARTS.get(solution.solver, {"solve"})
        solvers_own = timings.reduce + timings.build + timings.solve + timings.recover
        assert timings.plan == solvers_own
        assert timings.total == timings.plan + timings.marginals + timings.bound
        assert timings.marginals > 0.0 and timings.bound > 0.0


class Slow(TablePlan):
    """A plan that is returned at once, with slow marginals."""

    def marginals(self) -> Marginals:
        wait()
        return super().marginals()


class Mine(otlp.Solver):
    name = "mine"

    def supports(self, problem: otlp.Problem) -> otlp.Capability:
        wait()
        return super().supports(problem)

    def answer(self, problem: otlp.Problem, clock: Stopwatch) -> otlp.Answer:
        wait()
        tuples = problem.drafts.enumerate_tuples()
        return otlp.Answer(Slow(problem, tuples, np.tile(problem.target, (len(tuples.mass), 1))))


def test_the_verifier_is_charged_for_the_certificate() -> None:
    began = perf_counter()
    timings = Mine().solve(PROBLEMS[0]).timings
    outside = perf_counter() - began
    assert spent(timings) == {"solve"}
    assert timings.plan >= 2.0 * MOMENT and timings.marginals >= MOMENT
    # `total` is `plan` plus the certificate; loading is in neither.
    assert timings.plan + MOMENT <= timings.total <= outside


class Waiting(reductions.Support):
    """A slow reduction, as an example of a slow part."""

    def __init__(self, part: str) -> None:
        self.part = part  # type: ignore[misc]

    def reduce(self, source: otlp.Problem):
        wait()
        return super().reduce(source)


@pytest.mark.parametrize("part", ["reduce", "build"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_reduction_says_which_part_it_is(part: str, nested: bool) -> None:
    class Slower(otlp.solvers.MaxFlow):
        @property
        def reduction(self) -> reductions.Chain:
            first = Waiting(part)
            steps = reductions.MergeTuples(), reductions.NetworkReduction()
            return reductions.Chain(reductions.Chain(first) if nested else first, *steps)

    assert getattr(Slower().solve(PROBLEMS[0]).timings, part) >= MOMENT


def test_auto_is_charged_for_the_choice() -> None:
    class Choosing(otlp.solvers.Auto):
        def resolve(self, problem: otlp.Problem) -> otlp.Solver:
            wait()
            return super().resolve(problem)

    assert Choosing().solve(PROBLEMS[0]).timings.solve >= MOMENT


def test_what_is_imported_at_a_first_solve_is_loaded_and_not_solved() -> None:
    code = """
import sys, time
import otlp

class Slow:
    names = {"scipy.linalg", "scipy.optimize", "highspy", "ortools"}

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            self.names.remove(name)
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
p, q = [0.1, 0.6, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]
problem = otlp.Problem(p, otlp.IID(q, n=2))
without = otlp.Problem(p, otlp.WithoutReplacement(q, n=2))
for name in ("global-resolution", "linear-program", "max-flow", "random-ranks"):
    given = without if name == "random-ranks" else problem
    taken, again = (otlp.solve(given, name).timings for _ in range(2))
    assert taken.load >= 0.5 > taken.total, (name, taken)
    assert again.load == 0.0, (name, again)
assert not Slow.names, Slow.names
"""
    run_python(code)


def test_what_compiles_for_other_types_is_loading(tmp_path: Path) -> None:
    """Compilation of a second signature is excluded from times like that of the first."""
    (tmp_path / "twice.py").write_text("def twice(x): return x + x\n")  # never in a cache
    kernel = compiled(runpy.run_path(str(tmp_path / "twice.py"))["twice"])
    for argument in (1.0, 1):
        watch = Stopwatch()
        assert kernel(argument) == 2
        watch.charge("solve")
        taken = watch.read()
        assert taken.load > taken.solve


def test_loading_inside_loading_counts_once() -> None:
    watch = Stopwatch()
    with timing.loading(), timing.loading():
        wait()
    watch.charge("solve")
    assert MOMENT <= watch.read().load and watch.read().solve >= 0.0


def test_long_loading_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    timing.warn_once.cache_clear()
    monkeypatch.setattr(timing, "SILENCE", -1.0)
    for _ in range(2):
        with timing.loading():
            wait()
    assert len([one for one in caplog.records if "its compiled kernels" in one.message]) == 1
    assert "setLevel('ERROR')" in caplog.text
