from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import otlp
from otlp.plan import TablePlan
from otlp.plan.plan import residual_distribution
from otlp.reductions import PrimalDual, Support
from tests.instances import DEGENERATE, enumerated, problems

WAYS = {"sets": {"solver": "max-flow"}, "table": {"solver": "linear-program", "form": "full"}}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(problem=problems())
def test_marginals_are_those_of_the_slices(way: str, problem: otlp.Problem) -> None:
    plan = otlp.solve(problem, **WAYS[way]).plan
    output, accepted = enumerated(plan)
    marginals = plan.marginals()
    np.testing.assert_allclose(marginals.output, output, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(marginals.acceptance, accepted, rtol=0.0, atol=1e-13)
    assert marginals.slack <= 1e-13


def test_a_slice_is_a_copy() -> None:
    problem = DEGENERATE["one draft"]
    for way in WAYS.values():
        plan = otlp.solve(problem, **way).plan
        law = plan.conditional([0])
        law[:] = 7.0
        assert plan.conditional([0]).sum() == pytest.approx(1.0, abs=1e-15)


def test_a_lifted_estimate_keeps_its_interval() -> None:
    drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2, 0.0], 2)
    small, inverse = Support().apply(otlp.Problem([0.1, 0.6, 0.2, 0.1], drafts))
    plan = otlp.solvers.RecursiveRejection(max_sequences=0.5, samples=100).prepare(small)
    lifted = Support().invert(PrimalDual(plan), inverse).primal
    assert lifted.marginals().interval == plan.marginals().interval is not None


def test_accepted_means_drafted() -> None:
    plan = otlp.solve(DEGENERATE["uniform"], "max-flow").plan
    assert plan.accepted(2, [1, 2, 2])
    assert not plan.accepted(0, [1, 2, 2])


def test_the_order_of_drafted_tokens_does_not_matter_to_a_plan_over_sets() -> None:
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(5), 2)
    plan = otlp.solve(otlp.Problem(p, otlp.IID(q, 3)), "max-flow").plan
    np.testing.assert_array_equal(plan.conditional([0, 3, 0]), plan.conditional([3, 3, 0]))


def test_residual_law() -> None:
    target = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(
        residual_distribution(target, np.array([0.2, 0.1, 0.4])), [0, 2 / 3, 1 / 3]
    )
    # More than the target is no negative residual, and nothing left is the target itself.
    np.testing.assert_allclose(residual_distribution(target, np.array([0.3, 0.1, 0.5])), [0, 1, 0])
    assert residual_distribution(target, target) is target


@pytest.mark.parametrize(
    "slices", [[[1.5, -0.5], [0.5, 0.5]], [[0.5, 0.7], [0.5, 0.3]]], ids=["negative", "sums"]
)
def test_slices_that_are_no_laws_show_in_the_slack(slices: list[list[float]]) -> None:
    drafts = otlp.Explicit([[0], [1]], [0.5, 0.5])
    rows = np.array(slices)
    target = 0.5 * rows.sum(axis=0)
    plan = TablePlan(otlp.Problem(target, drafts), drafts.enumerate_tuples(), rows)
    assert np.abs(plan.marginals().output - target).sum() == 0.0
    assert plan.marginals().slack >= 0.1
