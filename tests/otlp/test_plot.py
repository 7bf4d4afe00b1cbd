"""Figures show the contents of plans: masses in cells, flows into sets, acceptance over n."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import otlp
from otlp.decode import ALGORITHMS
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.numerics.power_slope import power_slope
from otlp.solvers import SOLVERS
from otlp.studies import style

matplotlib = pytest.importorskip("matplotlib", reason='pip install -e ".[plot]"')
matplotlib.use("agg")

P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
CASES = {
    "three tokens": (P, Q, 2),
    "swaps": ([0.04, 0.10, 0.10, 0.20, 0.16, 0.40], [0.20, 0.22, 0.15, 0.18, 0.15, 0.10], 3),
    "mass outside the draft": ([0.2, 0.3, 0.1, 0.4], [0.7, 0.2, 0.1, 0.0], 2),
    "tiny": ([0.3, 0.7, 1e-200], [0.6, 0.4 - 1e-12, 1e-12], 4),
    "equal": ([0.25] * 4, [0.25] * 4, 2),
}


@pytest.fixture(autouse=True)
def closed() -> object:
    """Close all pyplot figures after each test."""
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.parametrize(("p", "q", "n"), CASES.values(), ids=CASES)
def test_masses_on_cells_are_the_draft_and_give_the_selection(
    p: list[float], q: list[float], n: int
) -> None:
    plan = otlp.solve(otlp.Problem(p, otlp.IID(q, n)), "martingale").plan
    owner, cell, mass = plan.score_masses()
    assert (mass >= 0.0).all() and mass.sum() == pytest.approx(1.0, abs=1e-12)
    width = np.bincount(cell, mass)
    assert np.bincount(owner, mass) == pytest.approx(width, abs=1e-12)
    edges = np.concatenate(([0.0], np.minimum(np.cumsum(width), 1.0)))
    means = np.array([power_slope(a, b, n) for a, b in pairwise(edges)])
    selected = np.bincount(owner, mass * means[cell])
    known = plan.realised_selection_distribution()
    drafted = np.flatnonzero(plan.problem.drafts.support)
    group = plan.token_laws()[0][drafted]
    assert selected == pytest.approx(np.bincount(group, known[drafted]), abs=1e-9)
    axes = otlp.plot.scores(plan)
    area = sum(bar.get_width() * bar.get_height() for bar in axes.patches)
    assert area == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("solver", ["auto", "linear-program", "max-flow", "naive", "k-seq"])
def test_a_flow_sums_up_to_the_acceptance(solver: str) -> None:
    solution = otlp.solvers.make_solver(solver).solve(otlp.Problem(P, otlp.IID(Q, 2)))
    axes = otlp.plot.flow(solution)
    names = [text.get_text() for text in axes.texts if "{" in text.get_text()]
    shares = [float(name.partition("}")[2].partition("/")[0]) for name in names]
    assert len(names) == 6
    assert sum(shares) == pytest.approx(solution.acceptance, abs=0.03)  # two figures each
    widths = [(line.get_linewidth() - 0.6) / 12 for line in axes.lines if len(line.get_xdata()) > 1]
    assert sum(widths) == pytest.approx(solution.acceptance, abs=1e-9)


def test_acceptance_over_n_is_the_mean_of_the_problems_and_takes_given_axes() -> None:
    from matplotlib.figure import Figure

    given = Figure().subplots()
    problems = lambda n: [otlp.Problem(P, otlp.IID(Q, n)), otlp.Problem(Q, otlp.IID(P, n))]  # noqa: E731
    axes = otlp.plot.acceptance_over_n(problems, (1, 3), ("auto", "naive"), axes=given)
    assert axes is given
    for line, rule in zip(axes.lines, ("auto", "naive"), strict=True):
        means = [np.mean([otlp.solve(p, rule).acceptance for p in problems(n)]) for n in (1, 3)]
        assert line.get_ydata() == pytest.approx(means, abs=1e-12)


def test_what_cannot_be_drawn_is_refused_with_a_way_out() -> None:
    problem = otlp.Problem(P, otlp.IID(Q, 2))
    with pytest.raises(InvalidInputError, match=r"plan must have scores, got .*otlp\.plot\.flow"):
        otlp.plot.scores(otlp.solve(problem, "naive"))
    with pytest.raises(InvalidInputError, match=r"must be a Plan or a Solution .*, got Problem"):
        otlp.plot.flow(problem)
    with pytest.raises(SizeLimitError, match=r"at most 40 sets.*got 55;.*otlp\.plot\.scores"):
        otlp.plot.flow(otlp.solve(otlp.Problem([0.1] * 10, otlp.IID([0.1] * 10, 2))))
    with pytest.raises(otlp.errors.UnsupportedProblemError):
        otlp.plot.acceptance_over_n(lambda n: [problem], (2,), ("greedy",))


def test_an_algorithm_is_drawn_alike_in_every_figure() -> None:
    # auto is one of the other solvers, and autoregressive decoding does not verify
    assert {*SOLVERS, *ALGORITHMS} - {"auto", "autoregressive"} <= set(style.ALGORITHMS)
