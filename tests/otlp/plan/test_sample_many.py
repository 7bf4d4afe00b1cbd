"""`sample_many` has the distribution of `sample`, shown number by number."""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

import otlp
from otlp.auditing.gtest import g_test
from otlp.distribution import FloatArray, IntArray
from otlp.errors import (
    InvalidInputError,
    SizeLimitError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)
from otlp.plan import Plan, SelectionPlan
from tests.examples import examples
from tests.instances import DEGENERATE, SCHEMES, SMALL, problems, supported
from tests.replaying import Replaying

COINS = ("k-seq", "recursive-rejection")
"""Solvers whose plans draw one coin per draft here, and invert a running sum in `sample`."""

SUPPORTED = supported(SMALL)
EDGES = supported(DEGENERATE, ("auto", "max-flow", *COINS))
FALSE_ALARM = 1e-6


@cache
def plan_of(name: str, solver: str) -> Plan:
    return otlp.solve(SMALL[name], solver).plan


class Recording:
    """A generator that records its numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.given: list[FloatArray] = []

    def random(self, size: Any = None) -> Any:
        self.given.append(np.asarray(self.rng.random(size)))
        return self.given[-1]


@pytest.mark.parametrize(("name", "solver"), [pair for pair in SUPPORTED if pair[1] not in COINS])
def test_one_row_is_a_sample(name: str, solver: str) -> None:
    plan = plan_of(name, solver)
    for row in plan.problem.drafts.enumerate_tuples().tokens[:9]:
        for seed in range(5):
            one = plan.sample(row, np.random.default_rng(seed))
            many = plan.sample_many(row[None], np.random.default_rng(seed))
            assert many.dtype == np.int64 and many.tolist() == [one]


@pytest.mark.parametrize("solver", ["martingale", "orderings", "speculative-sampling"])
def test_each_row_is_the_same_function_of_its_numbers(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to `sample` for any numbers, so the distributions are equal, block by block."""
    monkeypatch.setattr("otlp.plan.selection.BLOCK", 64)
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.full(9, 0.5), 2)
    problem = otlp.Problem(p, otlp.IID(q, 1 if solver == "speculative-sampling" else 4))
    plan = otlp.solve(problem, solver).plan
    assert isinstance(plan, SelectionPlan)
    tokens = problem.drafts.sample(rng, 1_000)
    recording = Recording(0)
    verified = plan.sample_many(tokens, recording)
    replayed = []
    given_ = iter(recording.given)
    for begin in range(0, len(tokens), 64):
        rows = tokens[begin : begin + 64]
        choices = np.empty((len(rows), 0)) if solver == "speculative-sampling" else next(given_)
        coins, replacements = next(given_), next(given_)
        rejected = 0
        for row, choice, coin in zip(rows, choices, coins, strict=True):
            numbers = [] if solver == "speculative-sampling" else [choice]
            more = replacements[rejected : rejected + 1]
            replaying = Replaying(*numbers, coin, *more)
            replayed.append(plan.sample(row, replaying))
            rejected += len(replaying.numbers) < len(more)
        assert rejected == replacements.size
    assert next(given_, None) is None
    np.testing.assert_array_equal(verified, replayed)


@pytest.mark.parametrize(("name", "solver"), SUPPORTED)
def test_draws_follow_the_conditional(name: str, solver: str) -> None:
    plan = plan_of(name, solver)
    tuples, conditionals = plan.table()
    rng = np.random.default_rng(11)
    rows = rng.permutation(np.repeat(np.arange(len(tuples.mass)), 2_000))
    verified = plan.sample_many(tuples.tokens[rows], rng)
    counts = np.zeros(conditionals.shape, dtype=np.int64)
    np.add.at(counts, (rows, verified), 1)
    for count, conditional in zip(counts, conditionals, strict=True):
        assert not g_test(count, conditional, FALSE_ALARM).rejected


@pytest.mark.parametrize(("name", "solver"), EDGES)
def test_rare_tuples_and_tokens(name: str, solver: str) -> None:
    """A token drawn 8 times in 8 must not have a tiny probability or probability 0."""
    problem = DEGENERATE[name]
    plan = otlp.solve(problem, solver).plan
    tuples = problem.drafts.enumerate_tuples().tokens
    verified = plan.sample_many(np.repeat(tuples, 8, axis=0), np.random.default_rng(0))
    for row, drawn in zip(tuples, verified.reshape(-1, 8), strict=True):
        conditional = plan.conditional(row)
        for token in set(drawn.tolist()):
            assert conditional[token] > 0.0
            assert conditional[token] > 1e-5 or (drawn == token).sum() < 2


@pytest.mark.parametrize("kind", SCHEMES)
def test_each_tuple_is_possible_or_not(kind: str) -> None:
    @examples(15)
    @given(SCHEMES[kind])
    def check(problem: otlp.Problem) -> None:
        drafts = problem.drafts
        rng = np.random.default_rng(0)
        rows = np.concatenate(
            (drafts.sample(rng, 5), rng.integers(0, drafts.vocab_size, (20, drafts.n)))
        )
        expected = [drafts.possible(row) for row in rows]
        assert drafts._possible_each(rows).tolist() == expected

    check()


class Own(Plan):
    """A user-defined plan with only a conditional: the first draft, or the target."""

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        tokens: IntArray = self.problem.check_draft_tokens(draft_tokens)
        result: FloatArray = 0.5 * self.problem.target
        result[tokens[0]] += 0.5
        return result


def test_a_plan_of_ones_own_draws_many_for_nothing() -> None:
    plan = Own(SMALL["iid"])
    verified = plan.sample_many(np.tile([1, 0, 2], (20_000, 1)), np.random.default_rng(4))
    counts = np.bincount(verified, minlength=4)
    assert not g_test(counts, plan.conditional([1, 0, 2]), FALSE_ALARM).rejected


BAD_ROWS = {
    "one tuple": ([0, 1, 2], InvalidInputError),
    "too long": ([[0, 1, 2, 0]], InvalidInputError),
    "three axes": ([[[0, 1, 2]]], InvalidInputError),
    "floats": ([[0.0, 1.0, 2.0]], InvalidInputError),
    "ragged": ([[0, 1, 2], [0]], InvalidInputError),
    "none": ([], InvalidInputError),
    "outside": ([[0, 1, 2], [0, 4, 1]], TokenOutOfRangeError),
    "negative": ([[0, -1, 1]], TokenOutOfRangeError),
    "impossible": ([[0, 1, 2], [0, 3, 1]], ZeroProbabilityError),
}


@pytest.mark.parametrize("solver", ["martingale", "orderings", "naive", "k-seq", "max-flow"])
@pytest.mark.parametrize("why", BAD_ROWS)
def test_bad_rows_are_refused_before_a_number_is_drawn(why: str, solver: str) -> None:
    rows, error = BAD_ROWS[why]
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(error) as raised:
        plan_of("iid", solver).sample_many(rows, rng)
    assert rng.bit_generator.state == before
    if error is ZeroProbabilityError:
        assert "row 1" in str(raised.value) and "[0, 3, 1]" in str(raised.value)


@pytest.mark.parametrize("solver", ["martingale", "naive", "max-flow"])
def test_what_draws_no_numbers_is_no_generator(solver: str) -> None:
    with pytest.raises(InvalidInputError, match="default_rng"):
        plan_of("iid", solver).sample_many([[0, 1, 2]], 7)


@pytest.mark.parametrize(("name", "solver"), SUPPORTED)
def test_no_rows_are_no_tokens(name: str, solver: str) -> None:
    plan = plan_of(name, solver)
    none = np.empty((0, plan.problem.n), dtype=np.int32)
    assert plan.sample_many(none, np.random.default_rng(0)).tolist() == []


def test_memory_is_that_of_the_rows() -> None:
    plan = plan_of("iid", "martingale")
    tokens = np.zeros((400_000, 3), dtype=np.int64)
    plan.sample_many(tokens[:1], np.random.default_rng(0))
    tracemalloc.start()
    plan.sample_many(tokens, np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * tokens.nbytes


@examples(20)
@given(problem=problems())
def test_tables_hold_the_conditionals(problem: otlp.Problem) -> None:
    plan = otlp.solve(problem).plan
    tuples, dense = plan.table()
    same, sparse = plan.sparse_table()
    np.testing.assert_array_equal(tuples.tokens, same.tokens)
    np.testing.assert_array_equal(tuples.mass, same.mass)
    np.testing.assert_array_equal(dense, [plan.conditional(row) for row in tuples.tokens])
    np.testing.assert_array_equal(sparse.toarray(), dense)
    assert sparse.nnz == np.count_nonzero(dense)
    np.testing.assert_allclose(tuples.mass @ dense, problem.target, rtol=0.0, atol=1e-9)


def test_tables_over_the_limit_are_refused_by_name() -> None:
    target, draft = np.full((2, 50), 0.02)
    draft[:2] = 0.03, 0.01
    problem = otlp.Problem(target, otlp.IID(draft, 2))
    plan, naive = otlp.solve(problem).plan, otlp.solve(problem, "naive").plan
    with pytest.raises(SizeLimitError, match=r"2,500 tuples by 50 tokens.* 1 MiB.*memory_li"):
        plan.table(memory_limit=900_000)
    # every replacement is token 1, so a row holds at most three tokens
    assert plan.sparse_table(memory_limit=900_000)[1].nnz <= 7_500
    with pytest.raises(SizeLimitError, match=r"sparse table of 2,500 tuples"):
        naive.sparse_table(memory_limit=900_000)
    with pytest.raises(SizeLimitError, match="listing"):
        plan.table(memory_limit=1_000)
    for method in (plan.table, plan.sparse_table):
        with pytest.raises(InvalidInputError, match="memory_limit"):
            method(memory_limit="much")
