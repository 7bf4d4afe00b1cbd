"""The integral form of the two convex functions, against listed terms and exact rationals."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.drafts.token_sets import list_sets
from otlp.solvers.global_resolution.logsumexp_integral import LogSumExpIntegral
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp
from tests.examples import examples
from tests.instances import distributions


@st.composite
def pairs(draw):
    """Return the same function as a list and as an integral, and a point."""
    law = draw(distributions(draw(st.integers(2, 7))))
    draft, ignored = law[1:][law[1:] > 0.0], float(law[0])
    if not draft.size:
        draft = np.array([0.5])
    n, slack = draw(st.integers(1, 8)), draw(st.sampled_from([0.0, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    wanted = rng.random(draft.size) * n * draft
    listed = LogSumExp(list_sets(draft, n, ignored), wanted, slack)
    spread = draw(st.sampled_from([0.0, 1.0, 10.0, 200.0]))
    return (
        listed,
        LogSumExpIntegral(draft, n, ignored, wanted, slack),
        spread * rng.standard_normal(draft.size),
    )


@given(pairs())
@examples(40)
def test_agrees_with_the_listed_terms(pair):
    listed, integral, alpha = pair
    value, masses = listed.evaluate(alpha)
    again, integrated = integral.evaluate(alpha)
    assert again == pytest.approx(value, rel=1e-11, abs=1e-12 * (1.0 + np.abs(alpha).max()))
    np.testing.assert_allclose(integrated, masses, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(integrated, masses, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(integral.hessian(alpha), listed.hessian(alpha), rtol=0.03, atol=1e-4)


def test_exact_against_all_tuples():
    draft, ignored, n = np.array([0.125, 0.25, 0.0625]), 0.5625, 3
    rates = [Fraction(1, 3), Fraction(2), Fraction(1, 7)]
    laws = {i: Fraction(q) for i, q in enumerate(draft)} | {-1: Fraction(ignored)}
    for slack in (0, 1):
        exact = [Fraction(0)] * 3
        for row in product(laws, repeat=n):
            shown = set(row) - {-1}
            mass = np.prod([laws[i] for i in row])
            for i in shown:
                exact[i] += mass * rates[i] / (slack + sum(rates[j] for j in shown))
        integral = LogSumExpIntegral(draft, n, ignored, np.zeros(3), float(slack))
        given_mass = integral.evaluate(np.log([float(rate) for rate in rates]))[1]
        np.testing.assert_allclose(given_mass, [float(m) for m in exact], rtol=1e-14)


@pytest.mark.parametrize("slack", [0.0, 1.0])
def test_the_masses_of_a_large_system_add_up(slack):
    """10^17 sets: the mass of all variables is the drafted mass minus the slack mass."""
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.full(201, 0.3))
    integral = LogSumExpIntegral(law[1:], 12, law[0], np.zeros(200), slack)
    alpha = 3.0 * rng.standard_normal(200)
    drafted = 1.0 - law[0] ** 12
    if not slack:
        assert integral.evaluate(alpha)[1].sum() == pytest.approx(drafted, abs=1e-13)
    assert integral.evaluate(alpha + 60.0)[1].sum() == pytest.approx(drafted, abs=1e-13)
    assert integral.evaluate(alpha)[1].sum() <= drafted + 1e-13
    rows = integral.hessian(alpha).sum(axis=1)
    if not slack:
        np.testing.assert_allclose(rows, 0.0, rtol=0.0, atol=1e-13)
    assert np.linalg.eigvalsh(integral.hessian(alpha)).min() >= -1e-13
