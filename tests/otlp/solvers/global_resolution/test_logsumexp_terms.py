"""Merged coefficients and the two convex functions, against enumeration of all tuples."""

from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.drafts.token_sets import list_sets
from otlp.errors import SizeLimitError
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp
from otlp.solvers.global_resolution.softmax import accepted_shares, softmax_by_set
from tests.examples import examples
from tests.instances import distributions


@st.composite
def systems(draw, max_tokens=5, max_n=4):
    """Return draft probabilities of the tokens with a variable, the ignored mass, and n."""
    law = draw(distributions(draw(st.integers(2, max_tokens + 1))))
    ignored = float(law[0])
    return law[1:][law[1:] > 0.0], ignored, draw(st.integers(1, max_n))


def exact_coefficients(draft, n, ignored):
    """Return coefficients in exact rationals, by inclusion-exclusion."""
    q, base = [Fraction(float(value)) for value in draft], Fraction(ignored)
    result = {}
    for size in range(1, min(n, len(q)) + 1):
        for chosen in combinations(range(len(q)), size):
            result[chosen] = sum(
                (-1) ** (size - m) * (base + sum(q[i] for i in part)) ** n
                for m in range(size + 1)
                for part in combinations(chosen, m)
            )
    return result


def sets_of(terms):
    ends = zip(terms.offsets, terms.offsets[1:], strict=False)
    return [tuple(terms.members[a:b].tolist()) for a, b in ends]


def alternating_coefficient(members, n, ignored):
    """Inclusion-exclusion of the paper (Eq. 118, 120), with error about 2^m 1e-16."""
    return sum(
        (-1.0) ** (members.size - size) * (ignored + float(sum(chosen))) ** n
        for size in range(members.size + 1)
        for chosen in combinations(members.tolist(), size)
    )


@given(systems(max_tokens=5, max_n=8))
@examples(25)
def test_coefficients_are_exact_to_the_last_digits(system):
    draft, ignored, n = system
    terms = list_sets(draft, n, ignored)
    exact = exact_coefficients(draft, n, ignored)
    assert (terms.mass > 0.0).all()
    listed = dict(zip(sets_of(terms), terms.mass, strict=True))
    for chosen, value in exact.items():
        # Relative error for any set; absolute error for subnormal results.
        assert listed.get(chosen, 0.0) == pytest.approx(float(value), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("ignored", [0.0, 0.3, 0.999])
def test_coefficients_sum_to_the_mass_of_their_tuples(n, ignored):
    draft = np.random.default_rng(n).dirichlet(np.full(12, 0.2)) * (1.0 - ignored)
    draft = draft[draft > 0.0]
    terms = list_sets(draft, n, ignored)
    total = (ignored + draft.sum()) ** n - ignored**n
    assert terms.mass.sum() == pytest.approx(total, rel=1e-12)
    assert len(terms) == sum(comb(draft.size, m) for m in range(1, min(n, draft.size) + 1))


def test_the_alternating_sum_agrees_where_it_does_not_cancel_and_fails_where_it_does():
    common = np.array([0.2, 0.3, 0.25])
    for ignored in (0.0, 0.25):
        terms = list_sets(common, 5, ignored)
        for chosen, mass in zip(sets_of(terms), terms.mass, strict=True):
            reference = alternating_coefficient(common[list(chosen)], 5, ignored)
            assert mass == pytest.approx(reference, rel=1e-12)
    rare = np.array([1e-5, 2e-5, 3e-5, 1e-5, 2e-5, 1e-5, 1e-5, 1e-5])
    true = float(exact_coefficients(rare, 8, 0.5)[tuple(range(8))])
    assert list_sets(rare, 8, 0.5).mass[-1] == pytest.approx(true, rel=1e-12)
    assert abs(alternating_coefficient(rare, 8, 0.5) - true) > true


def functions(draft, ignored, n, slack, rng):
    terms = list_sets(draft, n, ignored)
    wanted = rng.random(draft.size) * n * draft
    return LogSumExp(terms, wanted, slack)


def enumerated(draft, ignored, n, alpha, slack):
    """Sum over all tuples; token -1 represents all ignored tokens."""
    laws = {i: float(q) for i, q in enumerate(draft)} | {-1: ignored}
    value, given_mass = 0.0, np.zeros(draft.size)
    for row in product(laws, repeat=n):
        shown = sorted(set(row) - {-1})
        mass = np.prod([laws[i] for i in row])
        if shown:
            total = slack + np.exp(alpha[shown]).sum()
            value += mass * np.log(total)
            given_mass[shown] += mass * np.exp(alpha[shown]) / total
    return value, given_mass


@pytest.mark.parametrize("slack", [0.0, 1.0])
@given(systems(max_tokens=4, max_n=3), st.integers(0, 2**32 - 1))
@examples(20)
def test_value_and_gradient_against_all_tuples(slack, system, seed):
    draft, ignored, n = system
    rng = np.random.default_rng(seed)
    function = functions(draft, ignored, n, slack, rng)
    alpha = 3.0 * rng.standard_normal(draft.size)
    value, given_mass = function.evaluate(alpha)
    gradient = given_mass - function.wanted
    expected, mass = enumerated(draft, ignored, n, alpha, slack)
    assert value == pytest.approx(expected - function.wanted @ alpha, rel=1e-11, abs=1e-13)
    np.testing.assert_allclose(gradient + function.wanted, mass, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("slack", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_derivatives_against_finite_differences(slack, n):
    rng = np.random.default_rng(n)
    law = rng.dirichlet(np.ones(7))
    function = functions(law[1:], law[0], n, slack, rng)
    alpha, step = rng.standard_normal(6), 1e-5
    shifts = step * np.eye(6)
    gradient = function.evaluate(alpha)[1] - function.wanted
    by_value = [
        (function.evaluate(alpha + d)[0] - function.evaluate(alpha - d)[0]) / (2.0 * step)
        for d in shifts
    ]
    by_gradient = [
        (function.evaluate(alpha + d)[1] - function.evaluate(alpha - d)[1]) / (2.0 * step)
        for d in shifts
    ]
    np.testing.assert_allclose(gradient, by_value, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(function.hessian(alpha), by_gradient, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("slack", [0.0, 1.0])
def test_convex_and_finite_for_variables_of_any_size(slack):
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.ones(6))
    function = functions(law[1:], law[0], 3, slack, rng)
    for spread in (0.0, 1.0, 50.0, 2000.0):
        alpha = spread * rng.standard_normal(5)
        assert np.isfinite(function.evaluate(alpha)[0])
        share = softmax_by_set(function.terms, alpha, slack)
        given_mass = np.bincount(
            function.terms.members, share * function.terms.mass[function.terms.rows]
        )
        np.testing.assert_allclose(function.evaluate(alpha)[1], given_mass, rtol=1e-11, atol=1e-300)
        assert np.linalg.eigvalsh(function.hessian(alpha)).min() >= -1e-15
        for j, members in enumerate(sets_of(function.terms)):
            at = slice(function.terms.offsets[j], function.terms.offsets[j + 1])
            tokens, ones = np.array(members), np.ones(len(members))
            own, rest = accepted_shares(tokens, alpha, slack, ones)
            np.testing.assert_allclose(share[at], own, rtol=1e-12, atol=1e-300)
            assert own.sum() + rest == pytest.approx(1.0, abs=1e-15)


def test_no_variables_at_all():
    function = LogSumExp(list_sets(np.empty(0), 3, 1.0), np.empty(0), 0.0)
    value, gradient = function.evaluate(np.empty(0))
    assert value == 0.0
    assert gradient.size == 0


@pytest.mark.parametrize("n", [171, 400, 1000])
def test_factorials_do_not_overflow(n):
    draft, ignored = np.array([0.5, 0.3, 1e-3]), 0.199
    terms = list_sets(draft, n, ignored)
    assert terms.mass.sum() == pytest.approx(1.0 - ignored**n, rel=1e-11)
    single = (ignored + draft) ** n - ignored**n
    listed = dict(zip(sets_of(terms), terms.mass, strict=True))
    for i, mass in enumerate(single):
        assert listed.get((i,), 0.0) == pytest.approx(mass, rel=1e-11, abs=1e-300)


def test_too_many_drafts_are_refused():
    with pytest.raises(SizeLimitError, match=r"n must be at most 1000 .*, got 1001"):
        list_sets(np.array([0.5, 0.5]), 1001)
