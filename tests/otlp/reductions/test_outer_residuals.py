"""Every solution of Theorem 6.1, against all subsets of the tokens outside H*."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.reductions.complementary_slackness import split
from otlp.reductions.outer_residuals import level_masses, outer_masses
from otlp.reductions.subset_selection import best_prefix, ratio_order
from tests.examples import examples
from tests.instances import IID_CASES, iid_problems

TOLERANCE = 1e-12


def parts(problem):
    p, q, n = problem.target, problem.drafts.draft, problem.n
    return p, q, n, best_prefix(p, q, n)[0]


def least_psi(p, q, n, inner, outer):
    """Minimum of psi(S) = p(S) - q(S)^n over inner <= S <= outer (Lemma 6.3): prefixes by q/p."""
    order = ratio_order(p, q)
    order = order[(outer & ~inner)[order]]
    sums = (np.append(0.0, np.cumsum(x[order])) + x[inner].sum() for x in (p, q))
    return float(np.subtract(next(sums), next(sums) ** n).min())


def ordered_masses(p, q, n, subset, order):
    """Theorem 6.2 in any order of the tokens outside H*, with one search per token."""
    inner, everything = np.ones(p.size, bool), np.ones(p.size, bool)
    result, last = np.zeros(p.size), least_psi(p, q, n, inner, everything)
    for token in order:
        inner[token] = False
        least = least_psi(p, q, n, inner, everything)
        result[token], last = min(max(p[token] + least - last, 0.0), p[token]), least
    return result


def check_theorem_6_1(masses, p, q, n, subset):
    """Check 0 <= masses <= p, the bound of every subset, and equality for all tokens outside H*."""
    assert (masses >= 0.0).all()
    assert (masses <= p).all()
    assert not masses[subset].any()
    outside = np.flatnonzero(~subset)
    for size in range(outside.size + 1):
        for chosen in combinations(outside, size):
            rest = np.delete(q, list(chosen)).sum()
            # p(S) + psi(V - S) = 1 - q(V - S)^n
            assert masses[list(chosen)].sum() <= 1.0 - rest**n + TOLERANCE
    assert masses.sum() == pytest.approx(1.0 - q[subset].sum() ** n, abs=TOLERANCE)


@given(iid_problems(), st.randoms(use_true_random=False))
@examples(60)
def test_feasible_for_every_subset(problem, random):
    p, q, n, subset = parts(problem)
    order = np.flatnonzero(~subset).tolist()
    random.shuffle(order)
    check_theorem_6_1(outer_masses(p, q, n, subset, ratio_order(p, q)), p, q, n, subset)
    check_theorem_6_1(level_masses(p, q, n, subset, ratio_order(p, q)), p, q, n, subset)
    check_theorem_6_1(ordered_masses(p, q, n, subset, np.array(order, int)), p, q, n, subset)


@pytest.mark.parametrize("name", IID_CASES)
def test_feasible_at_the_edges(name):
    p, q, n, subset = parts(IID_CASES[name])
    check_theorem_6_1(outer_masses(p, q, n, subset, ratio_order(p, q)), p, q, n, subset)
    check_theorem_6_1(level_masses(p, q, n, subset, ratio_order(p, q)), p, q, n, subset)


@given(iid_problems())
@examples(40)
def test_cumulative_minima_agree_with_one_search_a_token(problem):
    """The fast order is Theorem 6.2 in increasing order of q/p."""
    p, q, n, subset = parts(problem)
    outside = np.flatnonzero(~subset)
    with np.errstate(all="ignore"):
        ratio = np.where(q[outside] > 0.0, p[outside] / q[outside], np.inf)
    order = outside[np.argsort(-ratio, kind="stable")]
    np.testing.assert_allclose(
        outer_masses(p, q, n, subset, ratio_order(p, q)).sum(),
        ordered_masses(p, q, n, subset, order).sum(),
        rtol=0.0,
        atol=TOLERANCE,
    )
    if np.unique(ratio).size == ratio.size:  # ties may be in any order
        np.testing.assert_allclose(
            outer_masses(p, q, n, subset, ratio_order(p, q)),
            ordered_masses(p, q, n, subset, order),
            rtol=0.0,
            atol=TOLERANCE,
        )


@given(iid_problems(), st.data())
@examples(40)
def test_lemma_6_3_finds_the_least_psi_between_two_sets(problem, data):
    p, q, n, _ = parts(problem)
    sides = st.lists(st.sampled_from("iof"), min_size=p.size, max_size=p.size)
    side = np.array(data.draw(sides))  # inside, outside, free
    free = np.flatnonzero(side == "f")
    inner, outer = side == "i", side != "o"
    values = [
        p[inner].sum() + p[list(s)].sum() - (q[inner].sum() + q[list(s)].sum()) ** n
        for size in range(free.size + 1)
        for s in combinations(free, size)
    ]
    assert least_psi(p, q, n, inner, outer) == pytest.approx(min(values), abs=TOLERANCE)


@given(iid_problems())
@examples(40)
def test_residuals_are_zero_exactly_where_eq_7_says(problem):
    """Residuals vanish on H*; the rejected tuples inside H* need their sum, -psi(H*)."""
    p, q, n, subset = parts(problem)
    residual = np.where(subset, 0.0, p - outer_masses(p, q, n, subset, ratio_order(p, q)))
    delta = q[subset].sum() ** n - p[subset].sum()
    assert residual.sum() == pytest.approx(delta if subset.any() else 0.0, abs=TOLERANCE)
    outer, inner = split(problem)
    np.testing.assert_allclose(outer.wanted + inner.wanted, p, atol=1e-15)
    # not `subset`: if alpha* is 1 up to rounding, H* is empty
    np.testing.assert_array_equal(inner.wanted[inner.subset], p[inner.subset])
    for side in (outer, inner):
        assert side.wanted.sum() == pytest.approx(side.mass, abs=TOLERANCE)


def test_large_vocabulary_keeps_its_digits():
    rng = np.random.default_rng(3)
    q, p = rng.dirichlet(np.full(20_000, 0.05)), rng.dirichlet(np.full(20_000, 0.05))
    for n in (1, 3, 50):
        subset = best_prefix(p, q, n)[0]
        for masses in (
            outer_masses(p, q, n, subset, ratio_order(p, q)),
            level_masses(p, q, n, subset, ratio_order(p, q)),
        ):
            assert (masses >= 0.0).all()
            assert (masses <= p).all()
            assert masses.sum() == pytest.approx(1.0 - q[subset].sum() ** n, abs=TOLERANCE)
