"""No warning and no lost proof for masses that are subnormal, tiny, or equal up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.distribution import FloatArray
from otlp.solvers import GlobalResolution, LinearProgram, MaxFlow, Slackness, Solver
from tests.examples import examples
from tests.instances import check_solution

pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")

MASSES = (0.0, 5e-324, 1e-323, 1e-310, 1e-300, 1e-160, 1e-30, 1e-16, 2.2e-16, 1e-9, 0.1, 0.5, 1.0)
SOLVERS: dict[str, Solver] = {
    "max-flow": MaxFlow(),
    "relaxed": LinearProgram(),
    "full": LinearProgram("full"),
    "slackness": Slackness(),
    "global-resolution": GlobalResolution(),
    "published": GlobalResolution.published(),
}


@st.composite
def edge_distributions(draw: st.DrawFn, size: int) -> FloatArray:
    """Masses of all magnitudes, or equal masses up to rounding."""
    if draw(st.booleans()):
        weights = draw(st.lists(st.sampled_from(MASSES), min_size=size, max_size=size))
    else:
        shifts = st.sampled_from([0.0, 1e-16, 2.3e-16, -1e-16, 1e-13])
        weights = [1.0 + shift for shift in draw(st.lists(shifts, min_size=size, max_size=size))]
    total = sum(weights)
    return np.array(weights) / total if total > 0.0 else np.eye(size)[0]


@st.composite
def edge_problems(draw: st.DrawFn) -> otlp.Problem:
    """I.i.d., independent and listed drafts."""
    size, n = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    drafts: otlp.DraftScheme
    match draw(st.sampled_from(["iid", "iid", "independent", "explicit"])):
        case "iid":
            drafts = otlp.IID(draw(edge_distributions(size)), n)
        case "independent":
            drafts = otlp.Independent([draw(edge_distributions(size)) for _ in range(n)])
        case _:
            row = st.lists(st.integers(0, size - 1), min_size=n, max_size=n)
            tuples = draw(st.lists(row, min_size=1, max_size=8))
            drafts = otlp.Explicit(tuples, draw(edge_distributions(len(tuples))), size)
    return otlp.Problem(draw(edge_distributions(size)), drafts)


@pytest.mark.parametrize("name", SOLVERS)
@given(problem=edge_problems())
@examples(20)
def test_no_warning_and_the_whole_proof(name: str, problem: otlp.Problem) -> None:
    solver = SOLVERS[name]
    if not solver.supports(problem):
        return
    solution = solver.solve(problem)
    assert solution.status is otlp.Status.SOLVED, solution.message
    if name == "published":
        assert solution.guarantee is otlp.Guarantee.APPROXIMATE
        return
    iterative = name == "global-resolution"
    exact = otlp.Guarantee.LOSSLESS if iterative else otlp.Guarantee.OPTIMAL
    assert solution.guarantee is exact, str(solution)
    check_solution(solution)


@pytest.mark.parametrize("solver", [Slackness(), GlobalResolution()], ids=lambda s: s.name)
def test_a_subnormal_rest_of_the_draft(solver: Solver) -> None:
    """The level of the outer masses was divided by 1e-311: "overflow encountered in divide"."""
    target, draft = [8e-95, 4.7e-292, 1.0, 4.2e-244], [1e-311, 1.0, 1e-88, 1e-311]
    problem = otlp.Problem(target, otlp.IID(draft, 4))
    check_solution(solver.solve(problem))


@pytest.mark.parametrize("wide", [True, False], ids=["buckets", "single tokens"])
def test_buckets_of_tokens_whose_ratio_overflows(wide: bool) -> None:
    """Rounding requires 2e-15 from tokens with draft probability 5e-324."""
    size = 60 if wide else 8
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.ones(size))
    target = draft.copy()
    draft[::20] = 5e-324
    target[::20] = 2e-15
    problem = otlp.Problem(target / target.sum(), otlp.IID(draft / draft.sum(), 2))
    solution = GlobalResolution().solve(problem)
    assert solution.guarantee is otlp.Guarantee.LOSSLESS
    assert solution.gap <= 1e-2


@pytest.mark.parametrize("scheme", ["explicit", "independent"])
def test_a_token_whose_share_underflows_can_still_be_drafted(scheme: str) -> None:
    """Half of 5e-324 is 0: the token left the support, and its tuples were lost."""
    drafts: otlp.DraftScheme = otlp.Explicit([[0, 1], [2, 2]], [1.0, 5e-324])
    if scheme == "independent":
        drafts = otlp.Independent([[1.0, 0.0, 0.0], [0.0, 1.0, 5e-324]])
    assert drafts.support.tolist() == [True, True, True]
    problem = otlp.Problem([0.5, 0.3, 0.2], drafts)
    solution = MaxFlow().solve(problem)
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
    check_solution(solution)


@pytest.mark.parametrize(
    "tiny",
    [
        5e-324,
        pytest.param(1e-323, marks=pytest.mark.slow),
        pytest.param(1e-320, marks=pytest.mark.slow),
        pytest.param(2.3e-308, marks=pytest.mark.slow),
        1e-300,
    ],
)
@pytest.mark.parametrize("scheme", [otlp.IID, otlp.WithoutReplacement])
@pytest.mark.parametrize(
    "place", [0, *(pytest.param(place, marks=pytest.mark.slow) for place in (1, 2))]
)
def test_every_conditional_of_subnormal_masses_is_a_distribution(
    place: int, scheme: type[otlp.IID] | type[otlp.WithoutReplacement], tiny: float
) -> None:
    """Shares of cells were products with subnormal masses: above 1 in a cell, then NaN."""
    q, other = np.insert([0.0041, 0.9959], place, tiny), np.array([0.2, 0.3, 0.5])
    for n in (1, 2, 3):
        own, reversed_, apart = (scheme(draft, n) for draft in (q, q[::-1], other))
        pairs = ((q, own), (q, reversed_), (q[::-1], own), (q, apart), (other, own))
        for target, drafts in pairs:
            check_solution(otlp.solve(otlp.Problem(target, drafts)))


def test_shares_of_pools_with_subnormal_wants() -> None:
    """Divide p by the p of the pool; dividing the mass of the pool by its p overflowed."""
    draft = [0.041666666666666664, 0.125, 0.5208333333333334, 0.3125]
    problem = otlp.Problem([1e-320, 1e-320, 0.75, 0.25], otlp.WithoutReplacement(draft, 2))
    check_solution(otlp.solve(problem, "random-ranks"))
