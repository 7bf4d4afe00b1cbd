"""Theorem 5.1: the two systems together are the relaxed OTLP; each solves its own tuples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.certificate import Answer, certify
from otlp.errors import SizeLimitError, UnsupportedProblemError
from otlp.reductions import ComplementarySlackness, PrimalDual
from otlp.reductions.complementary_slackness import split
from otlp.reductions.subset_selection import subset_selection
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import brute_force_optimum, check_solution, iid_problems, problems
from tests.otlp.reductions.relaxed_optimum import maximum

TOLERANCE = 1e-9


@given(st.one_of(iid_problems(), problems()))
@examples(30)
def test_both_systems_are_filled_and_add_up_to_the_optimum(problem):
    systems, inverse = ComplementarySlackness().apply(problem)
    subset = inverse.subset
    outer, inner = maximum(systems.outer), maximum(systems.inner)
    # Eq. 6a: every group outside is filled; 6b: every token inside is filled
    assert outer.sum() == pytest.approx(systems.outer.groups.mass.sum(), abs=TOLERANCE)
    assert inner.sum() == pytest.approx(problem.target[subset].sum(), abs=TOLERANCE)
    assert outer.sum() + inner.sum() == pytest.approx(brute_force_optimum(problem), abs=TOLERANCE)
    assert not subset[systems.outer.groups.members].any()
    assert subset[systems.inner.groups.members].all()
    # the groups contain each tuple once
    listed = systems.outer.groups.mass.sum() + systems.inner.groups.mass.sum()
    assert listed == pytest.approx(1.0, abs=TOLERANCE)

    plan, lifted = ComplementarySlackness().invert(PrimalDual((outer, inner)), inverse)
    assert lifted is subset
    solution = certify(problem, "reference", Answer(plan, subset=subset), Stopwatch())
    check_solution(solution)
    assert solution.acceptance == pytest.approx(brute_force_optimum(problem), abs=TOLERANCE)


@given(iid_problems())
@examples(20)
def test_eq_8_rejects_inside_h_star_only_and_replaces_by_tokens_outside(problem):
    systems, inverse = ComplementarySlackness().apply(problem)
    answer = maximum(systems.outer), maximum(systems.inner)
    plan = ComplementarySlackness().invert(PrimalDual(answer), inverse).primal
    subset = inverse.subset
    for row, mass in zip(*vars(problem.drafts.enumerate_tuples()).values(), strict=True):
        law, drafted = plan.conditional(row) * mass, np.isin(np.arange(subset.size), row)
        if subset[row].all():
            assert law[subset & ~drafted].sum() <= TOLERANCE
        else:  # no residual: the tuple is accepted, and by its tokens outside H*
            assert law[~drafted].sum() <= TOLERANCE
            assert law[subset].sum() <= TOLERANCE


def test_the_systems_are_much_smaller_than_the_relaxed_problem():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(30))
    problem = otlp.Problem(p, otlp.IID(q, 3))
    systems, _ = ComplementarySlackness().apply(problem)
    together = len(systems.outer.groups) + len(systems.inner.groups)
    assert together < 0.5 * len(problem.drafts.enumerate_sets())


def test_split_needs_no_flow():
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))
    outer, inner = split(problem)
    alpha, subset = subset_selection(problem)
    assert (outer.subset == subset).all() and (inner.subset == subset).all()
    accepted = outer.wanted.sum() + inner.wanted[subset].sum()
    assert accepted == pytest.approx(alpha, abs=1e-15)


def test_what_is_not_covered_is_refused_with_a_reason():
    explicit = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0]))
    with pytest.raises(UnsupportedProblemError, match=r"i\.i\.d"):
        split(explicit)
    uniform = np.full(500, 1 / 500)
    wide = otlp.Problem(uniform, otlp.IID(uniform, 4))
    with pytest.raises(SizeLimitError, match="memory_limit"):
        ComplementarySlackness(2**20).apply(wide)
