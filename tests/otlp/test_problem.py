from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.distribution import FloatArray
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    OTLPError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)
from tests.examples import examples
from tests.instances import DEGENERATE, problems

DRAFTS = otlp.IID([0.5, 0.3, 0.2], 2)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ([0.5, np.nan, 0.5], r"target\[1\] = nan"),
        ([0.5, np.inf, 0.5], r"target\[1\] = inf"),
        ([0.6, 0.5, -0.1], r"target\[2\] = -0.1"),
        ([0.5, 0.3, 0.3], r"must sum to 1 .*, got 1\.1"),
        ([0.0, 0.0, 0.0], "must sum to 1 .*, got 0"),
        ([[0.5, 0.3, 0.2]], r"shape \(1, 3\)"),
        ([], r"shape \(0,\)"),
        (["a", "b", "c"], "real numbers"),
    ],
)
def test_bad_targets(target: object, words: str) -> None:
    with pytest.raises(InvalidDistributionError, match=words):
        otlp.Problem(target, DRAFTS)


def test_bad_drafts() -> None:
    with pytest.raises(InvalidInputError, match=r"must be a draft scheme.*; got ndarray"):
        otlp.Problem([0.5, 0.5], np.array([0.5, 0.5]))
    with pytest.raises(InvalidInputError, match="same vocabulary, got 2 and 3 tokens"):
        otlp.Problem([0.5, 0.5], DRAFTS)
    with pytest.raises(InvalidDistributionError, match=r"draft must sum to 1 .*, got 0\.9"):
        otlp.IID([0.5, 0.4], 2)


PLACED = otlp.Problem([0.2, 0.3, 0.5], DRAFTS)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: otlp.Problem(DRAFTS, [0.5, 0.3, 0.2]), "such as otlp.IID"),
        (lambda: otlp.IID(2, [0.5, 0.3, 0.2]), r"vector of shape \(V,\), got shape \(\)"),
        (lambda: otlp.IID([[0.5, 0.5]], 2), r"vector of shape \(V,\), got shape \(1, 2\)"),
        (lambda: otlp.Independent([0.5, 0.5]), r"drafts\[0\] must be a non-empty vector"),
        (lambda: otlp.Problem([1.0, -2.0, 3.0], DRAFTS), "use otlp.softmax for logits"),
        (lambda: otlp.Problem([5, 3, 2], DRAFTS), "divide by the sum"),
        (lambda: otlp.solve("martingale", PLACED), "such as otlp.Problem"),
        (lambda: otlp.solve([0.5, 0.5]), "problem must be .* such as otlp.Problem.*got list"),
        (lambda: otlp.solve([0.5, 0.5], [0.5, 0.5]), r"solve\(p, q, n=2\)"),
        (lambda: otlp.solve(otlp.Problem), "must be an otlp.Problem.*got the class Problem"),
        (
            lambda: otlp.Problem([0.5, 0.5], otlp.IID),
            "drafts must be .*otlp.IID.*got the class IID",
        ),
        (lambda: otlp.Problem([0.5, 0.5], [0.5, 0.5]), "drafts must be .*otlp.IID.*got list"),
        (
            lambda: otlp.solve(PLACED, otlp.solvers.Naive),
            r"such as Naive\(\), .*got the class Naive",
        ),
        (
            lambda: otlp.solve(PLACED).plan.sample(np.random.default_rng(0), [0, 1]),
            r"a random generator, such as np.random.default_rng\(0\); got list",
        ),
        (lambda: otlp.solve(PLACED).plan.accepted([0, 1], 1), r"token must be .*, got \[0, 1\]"),
    ],
)
def test_what_stands_in_the_wrong_place_is_told_where_it_belongs(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(OTLPError, match=words):
        call()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_precision_is_normalised_in_float64(dtype: type) -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(5000)).astype(dtype)
    problem = otlp.Problem(values, otlp.IID(values, 2))
    assert problem.target.dtype == np.float64
    assert abs(problem.target.sum() - 1.0) <= 1e-14


def test_a_problem_cannot_be_changed_afterwards() -> None:
    target = np.array([0.2, 0.3, 0.5])
    problem = otlp.Problem(target, DRAFTS)
    target[0] = 9.0
    assert problem.target.tolist() == [0.2, 0.3, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        problem.target[0] = 1.0
    with pytest.raises(AttributeError):
        problem.drafts = DRAFTS  # type: ignore[misc]


@examples(80)
@given(problem=problems(), data=st.data())
def test_no_subset_bounds_below_what_it_allows(problem: otlp.Problem, data: st.DataObject) -> None:
    """p(H) + P(some draft outside H), summed tuple by tuple."""
    flags = data.draw(
        st.lists(st.booleans(), min_size=problem.vocab_size, max_size=problem.vocab_size)
    )
    inside = np.array(flags)
    tuples = problem.drafts.enumerate_tuples()
    outside = tuples.mass[~inside[tuples.tokens].all(axis=1)].sum()
    expected = min(1.0, problem.target[inside].sum() + outside)
    assert problem.dual_value(inside) == pytest.approx(expected, abs=1e-13)
    assert problem.dual_value(np.flatnonzero(inside)) == problem.dual_value(inside)


@pytest.mark.parametrize("name", DEGENERATE)
def test_trivial_bounds(name: str) -> None:
    problem = DEGENERATE[name]
    everything = np.ones(problem.vocab_size, dtype=bool)
    assert problem.dual_value(everything) == pytest.approx(1.0, abs=1e-15)
    assert problem.dual_value(~everything) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ([0], InvalidInputError, r"shape \(1,\)"),
        ([0, 1, 2], InvalidInputError, r"shape \(3,\)"),
        ([[0, 1]], InvalidInputError, r"shape \(1, 2\)"),
        ([0.0, 1.0], InvalidInputError, "float64"),
        ([0, 3], TokenOutOfRangeError, r"token id 3 lies outside the vocabulary \[0, 3\)"),
        ([-1, 0], TokenOutOfRangeError, "token id -1"),
        ([0, 2], ZeroProbabilityError, r"\[0, 2\] has probability 0"),
    ],
)
def test_bad_draft_tokens(tokens: object, error: type[Exception], words: str) -> None:
    problem = otlp.Problem([0.2, 0.3, 0.5], otlp.IID([0.5, 0.5, 0.0], 2))
    with pytest.raises(error, match=words):
        problem.check_draft_tokens(tokens)
    plan = otlp.solve(problem, "max-flow").plan
    with pytest.raises(error, match=words):
        plan.conditional(tokens)
    with pytest.raises(error, match=words):
        plan.sample(tokens, np.random.default_rng(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda law: otlp.IID(law, 64),
        lambda law: otlp.Independent([law] * 64),
        lambda law: otlp.WithoutReplacement(law, 64),
    ],
    ids=["iid", "independent", "without replacement"],
)
def test_a_tuple_whose_probability_underflows_can_still_be_drafted(
    make: Callable[[FloatArray], otlp.DraftScheme],
) -> None:
    """1e-6 to the power 64 is zero in float64, but every draft remains possible."""
    law, impossible, tokens = np.full(100, 1e-7), np.zeros(100), np.arange(1, 65)
    law[0], impossible[:70] = 1.0 - law[1:].sum(), 1.0 / 70.0
    assert otlp.Problem(law, make(law)).check_draft_tokens(tokens).tolist() == tokens.tolist()
    with pytest.raises(ZeroProbabilityError):
        otlp.Problem(law, make(impossible)).check_draft_tokens(tokens + 20)


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_problem_is_equal_to_its_pickle_whatever_was_derived(name: str) -> None:
    problem = DEGENERATE[name]
    copy = pickle.loads(pickle.dumps(problem))
    assert copy == problem and hash(copy) == hash(problem)
    otlp.solve(problem)
    assert problem.drafts.mean_draft is not None and copy == problem
    other = otlp.Problem(np.eye(problem.vocab_size)[0], otlp.IID(np.eye(problem.vocab_size)[0], 9))
    assert other != problem and problem != problem.target.tobytes()
