"""Two independent drafts: the minimum cut among tokens is subset selection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.reductions import CanonicalDecomposition, PairwiseCut
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.engines import FLOW_ENGINES
from tests.examples import examples
from tests.instances import DEGENERATE, brute_force_optimum, iid_problems, independent_problems


def cut(problem, engine):
    network, inverse = PairwiseCut().apply(problem)
    answer = FLOW_ENGINES[engine](network)
    size = problem.vocab_size
    value = answer.primal[:size].sum() - network.capacities[-size:].sum()
    return 1.0 + value, PairwiseCut().invert(answer, inverse).dual


def check(problem, engine):
    alpha, subset = cut(problem, engine)
    best = brute_force_optimum(problem)
    assert alpha == pytest.approx(best, abs=1e-12)
    assert problem.dual_value(subset) == pytest.approx(best, abs=1e-12)
    assert subset_selection(problem)[0] == pytest.approx(best, abs=1e-9)


PAIRS = {
    name: problem
    for name, problem in DEGENERATE.items()
    if problem.n == 2 and problem.drafts.independent_drafts is not None
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_cut_is_the_optimum_at_the_edges(engine, name):
    check(PAIRS[name], engine)


@given(
    st.one_of(
        independent_problems(min_n=2, max_n=2),
        iid_problems(min_n=2, max_n=2),
    )
)
@examples(40)
def test_the_cut_is_the_optimum_for_two_drafts(engine, problem):
    check(problem, engine)


def test_the_example_that_no_prefix_solves(engine):
    drafts = otlp.Independent([[0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]])
    alpha, subset = cut(otlp.Problem([0.14, 0.68, 0.02, 0.16], drafts), engine)
    assert alpha == pytest.approx(0.9448, abs=1e-12)
    assert subset.tolist() == [False, False, True, True]


def test_it_agrees_with_submodular_minimisation_on_larger_vocabularies(engine):
    rng = np.random.default_rng(0)
    p, first, second = rng.dirichlet(np.full(100, 0.3), size=3)
    problem = otlp.Problem(p, otlp.Independent([first, second]))
    assert problem.dual_value(cut(problem, engine)[1]) == pytest.approx(
        subset_selection(problem)[0], abs=1e-9
    )


def test_what_is_not_quadratic_or_too_large_is_refused_with_the_way_out():
    three = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 3))
    with pytest.raises(UnsupportedProblemError, match="subset_selection"):
        PairwiseCut().apply(three)
    two = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 2))
    with pytest.raises(UnsupportedProblemError, match="memory_limit"):
        PairwiseCut(memory_limit=100).apply(two)


def test_what_is_no_problem_plan_or_answer_is_refused():
    for call in (
        lambda: PairwiseCut().apply(3),
        lambda: PairwiseCut().invert(3, 3),
        lambda: CanonicalDecomposition(3),
    ):
        with pytest.raises(InvalidInputError, match="3"):
            call()
