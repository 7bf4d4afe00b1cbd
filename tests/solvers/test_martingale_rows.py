"""Rows that are solved together give what each gives alone, to the bit, plan and certificate."""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.distribution import FloatArray
from otlp.solvers.martingale_rows import solve_rows
from otlp.solvers.score_plan import ScorePlan

SWAPS = ("groups", "group", "low", "high", "low_share", "high_share")


def laws(rows: int, vocab_size: int, seed: int, spread: float = 3.0) -> FloatArray:
    logits = spread * np.random.default_rng(seed).normal(size=(rows, vocab_size))
    return otlp.softmax(logits)


def with_zeros(rows: FloatArray, step: int) -> FloatArray:
    """Without every so many tokens, other ones in each row."""
    left = rows.copy()
    for row, law in enumerate(left):
        law[row % step :: step] = 0.0
        law /= law.sum()
    return left


P, Q = laws(5, 300, 1), laws(5, 300, 2)
CASES = {
    "plain": (P, Q),
    "p is q": (P, P),
    "many tokens": (laws(3, 5001, 8), laws(3, 5001, 9)),
    "ties": (np.full((3, 64), 1 / 64), laws(3, 64, 3).round(2) + 0.01),
    "few drafted": (P, with_zeros(Q, 2)),
    "few wanted": (with_zeros(P, 3), Q),
    "nothing in common": (np.eye(6)[:3], np.eye(6)[3:]),
    "one token": (np.ones((2, 1)), np.ones((2, 1))),
    "tiny": (laws(4, 90, 5, 200.0), laws(4, 90, 6, 200.0)),
    "supports of other sizes": (laws(3, 9, 7), np.tril(np.ones((3, 9)), 3) / [[4], [5], [6]]),
}


@pytest.mark.parametrize("n", [1, 2, 4, 100])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_what_each_is_alone(case: str, n: int) -> None:
    target, draft = CASES[case]
    target = target / target.sum(axis=1, keepdims=True)
    draft = draft / draft.sum(axis=1, keepdims=True)
    together = solve_rows(target.copy(), draft.copy(), n, plans=True)
    without = solve_rows(target.copy(), draft.copy(), n, plans=False)
    for row, (found, bare) in enumerate(zip(together, without, strict=True)):
        problem = otlp.Problem(target[row], otlp.IID(draft[row], n))
        alone = otlp.solve(problem, "martingale")
        assert found is not None and bare is not None
        assert bare.plan is None
        for other in (found, bare):
            assert other.solver == alone.solver
            assert other.status is alone.status
            assert other.guarantee is alone.guarantee
            assert other.acceptance == alone.acceptance
            assert other.upper_bound == alone.upper_bound
            assert other.marginal_error == alone.marginal_error
            assert other.marginal_method == alone.marginal_method
            assert np.array_equal(other.subset, alone.subset)
        assert isinstance(found.plan, ScorePlan) and isinstance(alone.plan, ScorePlan)
        assert np.array_equal(found.plan.selection_distribution, alone.plan.selection_distribution)
        assert np.array_equal(found.plan.residual, alone.plan.residual)
        for name in SWAPS:
            assert np.array_equal(
                getattr(found.plan.swaps, name), getattr(alone.plan.swaps, name)
            ), name
        mine = found.plan.problem
        assert np.array_equal(mine.target, problem.target)
        assert np.array_equal(mine.drafts.mean_draft, problem.drafts.mean_draft)
        assert mine.n == n
        with pytest.raises(ValueError, match="read-only"):
            mine.target[0] = 1.0
        drafted = mine.drafts.sample(np.random.default_rng(row), 3)
        for tokens in drafted:
            assert np.array_equal(found.plan.conditional(tokens), alone.plan.conditional(tokens))


def test_a_row_whose_ratios_are_close_is_left_to_be_solved_alone() -> None:
    size = 2**16
    close = otlp.softmax(1e-12 * np.random.default_rng(0).normal(size=(1, size)))
    target = np.concatenate([laws(1, size, 1), close, laws(1, size, 2)])
    found = solve_rows(target, np.full((3, size), 1 / size), 3, plans=True)
    assert [solution is None for solution in found] == [False, True, False]
