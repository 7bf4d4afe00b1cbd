"""Sampled sequences of rejected tokens."""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.drafts.without_replacement import UNIT
from otlp.solvers.recursive_rejection import (
    RecursiveRejectionWithoutReplacementPlan,
    SequentialRejectionPlan,
)
from otlp.solvers.rejections import _by_ratio, _rejected_mass, _rejected_token, _Step


def test_tokens_beside_a_path_with_nearly_all_the_rejected_mass() -> None:
    """The mass of the others is a sum; the total mass less that of the path has lost its digits."""
    drafts = otlp.WithoutReplacement([0.4, 0.35, 0.25, 3e-17, 1e-17], 2)
    tokens, known = _by_ratio(np.array([0.5, 0.5, 0.0, 0.0, 0.0]), drafts)
    step = _Step(0.0, 1.0 / UNIT, first=3, middle=3)
    masses = [_rejected_mass(step, known, k) for k in range(5)]
    assert tokens[:3].tolist() == [2, 3, 4] and masses == [0.25, 3e-17, 1e-17, 0.0, 0.0]
    path = np.array([0])
    uniforms = (np.arange(400) + 0.5) / 400
    drawn = [_rejected_token(np.array([u]), step, path, known) for u in uniforms]
    assert np.bincount(drawn, minlength=5).tolist() == [0, 300, 100, 0, 0]


SMALLEST = 5e-324


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ([1.0, SMALLEST, 1e-310, 1e-200], [0.25, 0.25, 0.25, 0.25]),
        ([0.5, 0.5, SMALLEST, 1e-320], [1e-300, 0.0, 0.5, 0.5]),
        ([1e-16, 1.0, SMALLEST, SMALLEST], [0.9, 1e-160, 0.1, 0.0]),
        ([0.3, 1e-100, 0.7, 1e-308], [0.0, 1.0, 0.0, SMALLEST]),
    ],
)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_faster_steps_agree_with_steps_that_normalise(draft, target, n) -> None:
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, n))
    plans = [
        kind(problem, 200, 0, None)
        for kind in (RecursiveRejectionWithoutReplacementPlan, SequentialRejectionPlan)
    ]
    fast, slow = (plan._summed() for plan in plans)
    np.testing.assert_allclose(fast.acceptance, slow.acceptance, rtol=0.0, atol=1e-14)
    for found in (fast, plans[0]._sampled()):
        np.testing.assert_allclose(found.output, problem.target, rtol=0.0, atol=1e-14)
    for row in problem.drafts.enumerate_tuples().tokens:
        one, other = (plan.conditional(row) for plan in plans)
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-14)
