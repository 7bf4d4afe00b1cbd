"""Reduction to the support plus one token for all others; test_chain.py lifts whole answers."""

from __future__ import annotations

import numpy as np

import otlp
from otlp.reductions import PrimalDual, Support
from otlp.solvers.max_flow import MaxFlow


def test_mass_outside_the_support_keeps_its_law() -> None:
    problem = otlp.Problem([0.1, 0.2, 0.3, 0.4], otlp.IID([0.0, 1.0, 0.0, 0.0], 2))
    small, inverse = Support().apply(problem)
    assert small.vocab_size == 2
    plan = Support().invert(PrimalDual(MaxFlow().solve(small).plan), inverse).primal
    np.testing.assert_allclose(plan.conditional([1, 1]), problem.target, atol=1e-15)
    rng = np.random.default_rng(0)
    assert {plan.sample([1, 1], rng) for _ in range(200)} == {0, 1, 2, 3}


def test_subsets_keep_their_tokens() -> None:
    problem = otlp.Problem([0.4, 0.1, 0.3, 0.2], otlp.IID([0.0, 0.9, 0.0, 0.1], 2))
    small, inverse = Support().apply(problem)
    lifted = Support().invert(PrimalDual(None, np.array([True, False, True])), inverse).dual
    assert lifted.tolist() == [False, True, False, False]
    assert problem.dual_value(lifted) == small.dual_value([0])


def test_full_support_is_left_alone() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.3, 0.7], 2))
    small, inverse = Support().apply(problem)
    assert small is problem
    plan = MaxFlow().solve(small).plan
    assert Support().invert(PrimalDual(plan), inverse).primal is plan


def test_vocabulary_shrinks_to_the_tokens_that_count() -> None:
    target = np.full(1000, 1e-3)
    problem = otlp.Problem(target, otlp.IID(target, 3).top_k(10))
    small, _ = Support().apply(problem)
    assert small.vocab_size == 11
    assert abs(small.target[10] - 0.99) <= 1e-12
