from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import otlp
from otlp.reductions.subset_selection import subset_selection
from tests.instances import DEGENERATE, brute_force_optimum, explicit_problems, iid_problems

IID_CASES = [name for name, problem in DEGENERATE.items() if isinstance(problem.drafts, otlp.IID)]


def check(problem: otlp.Problem) -> None:
    alpha, subset = subset_selection(problem)
    assert alpha == problem.dual_value(subset)
    assert abs(alpha - brute_force_optimum(problem)) <= 1e-12
    assert not subset[~problem.drafts.support].any()


@settings(max_examples=150)
@given(problem=iid_problems())
def test_best_of_all_subsets(problem: otlp.Problem) -> None:
    check(problem)


@pytest.mark.parametrize("name", IID_CASES)
def test_degenerate_problems(name: str) -> None:
    check(DEGENERATE[name])


def test_one_draft_is_the_overlap() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(1000), 2)
    alpha, _ = subset_selection(otlp.Problem(p, otlp.IID(q, 1)))
    assert alpha == pytest.approx(np.minimum(p, q).sum(), abs=1e-14)


def test_more_drafts_are_never_worse() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(500, 0.1), 2)
    values = [subset_selection(otlp.Problem(p, otlp.IID(q, n)))[0] for n in range(1, 30)]
    assert (np.diff(values) >= -1e-15).all()


@settings(max_examples=80)
@given(problem=explicit_problems())
def test_best_of_all_subsets_for_listed_tuples(problem: otlp.Problem) -> None:
    alpha, subset = subset_selection(problem)
    assert alpha == problem.dual_value(subset)
    assert abs(alpha - brute_force_optimum(problem)) <= 1e-8
