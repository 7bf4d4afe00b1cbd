from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.plan.plan import residual_distribution
from otlp.reductions import PrimalDual, Support
from otlp.solvers import LinearProgram, MaxFlow, Slackness, Solver
from tests.examples import examples
from tests.instances import DEGENERATE, enumerated, problems

WAYS = {"sets": {"solver": "max-flow"}, "table": {"solver": "linear-program", "form": "full"}}


@pytest.mark.parametrize("way", WAYS)
@examples(20)
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
    # An excess over the target gives residual 0; an empty residual is replaced by the target.
    np.testing.assert_allclose(residual_distribution(target, np.array([0.3, 0.1, 0.5])), [0, 1, 0])
    assert residual_distribution(target, target) is target


TABLES = {
    "relaxed": LinearProgram(),
    "full": LinearProgram("full"),
    "max-flow": MaxFlow(),
    "slackness": Slackness(),
}


@pytest.mark.parametrize("solver", TABLES.values(), ids=TABLES)
def test_tuples_of_a_probability_that_underflows_are_on_no_list_and_verified(
    solver: Solver,
) -> None:
    # 1e-320 * 1 * 1e-300 is zero, so (0, 1, 1) is not listed; other tuples are.
    drafts = otlp.Independent([[1e-320, 1.0], [0.0, 1.0], [1.0, 1e-300]])
    plan = solver.solve(otlp.Problem([1.0, 0.0], drafts)).plan
    np.testing.assert_array_equal(plan.conditional([0, 1, 1]), [1.0, 0.0])
    assert plan.sample([0, 1, 1], np.random.default_rng(0)) == 0
    assert plan.sample_many([[0, 1, 1], [1, 1, 0]], np.random.default_rng(0)).tolist() == [0, 0]
    iid = otlp.Problem([0.5, 0.5], otlp.IID([1.0, 1e-200], 2))
    plan = solver.solve(iid).plan
    law = plan.conditional([1, 1])
    assert law.min() >= 0.0 and law.sum() == pytest.approx(1.0, abs=1e-12)
