"""SpecHub: its theorems; a is the most likely draft token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from tests.examples import examples
from tests.instances import distributions, targets

SCHEMES = {
    "iid": lambda q: otlp.IID(q, 2),
    "without-replacement": lambda q: otlp.WithoutReplacement(q, 2),
    "hub": otlp.Hub,
}


@st.composite
def pairs(draw):
    """Return a target, and a draft with at least two tokens in its support."""
    draft = draw(distributions(4))
    draft = (draft + 0.01) / (draft + 0.01).sum()
    return draw(targets(draft)), draft


@pytest.mark.parametrize("scheme", SCHEMES)
@given(pairs())
@examples(15)
def test_theorem_1_the_smaller_program_has_the_same_value(scheme, pair):
    target, draft = pair
    problem = otlp.Problem(target, SCHEMES[scheme](draft))
    forms = [otlp.solve(problem, "linear-program", form=form) for form in ("relaxed", "full")]
    assert forms[0].acceptance == pytest.approx(forms[1].acceptance, abs=1e-8)


@given(pairs())
@examples(25)
def test_theorem_2_and_corollary_1(pair):
    """Summed over all pairs, the output is the target; the top token is never replaced."""
    target, draft = pair
    problem = otlp.Problem(target, otlp.Hub(draft))
    plan = otlp.solve(problem, "hub").plan
    tuples = problem.drafts.enumerate_tuples()
    output, accepted = np.zeros(4), np.zeros(4)
    for drafted, mass in zip(tuples.tokens, tuples.mass, strict=True):
        law = mass * plan.conditional(drafted)
        output += law
        accepted[np.unique(drafted)] += law[np.unique(drafted)]
    np.testing.assert_allclose(output, target, atol=1e-12)
    top = int(np.argmax(draft))
    assert accepted[top] == pytest.approx(target[top], abs=1e-12)


@given(pairs())
@examples(50)
def test_theorems_3_and_4(pair):
    """Better than recursive rejection, and than the i.i.d. optimum if q(a) is large."""
    target, draft = pair
    hub = otlp.solve(otlp.Problem(target, otlp.Hub(draft)), "hub").acceptance
    iid = otlp.Problem(target, otlp.IID(draft, 2))
    first = np.minimum(target, draft).sum()
    if draft.max() / (1 - draft.max()) > 1 - first:
        assert hub >= otlp.solve(iid, "recursive-rejection").acceptance - 1e-12
    if draft.max() > 0.5:
        assert hub >= otlp.optimal_acceptance(iid) - 1e-12
