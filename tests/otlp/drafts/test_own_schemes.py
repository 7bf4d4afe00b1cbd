"""Schemes that define only the law of the next draft: the derived methods agree."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.decode import ALGORITHMS, ShapedDrafting, random_pair, tree_shape
from otlp.decode.laws.round_laws import draft_trees, round_law
from otlp.distribution import FloatArray
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError, SizeLimitError, UnsupportedProblemError
from otlp.reductions.subset_selection import subset_selection
from tests.examples import examples
from tests.instances import DEGENERATE, SCHEMES, check_solution
from tests.otlp.drafts.scheme_checks import check_renaming, check_samples, check_scheme

CLOSE = {"rtol": 1e-11, "atol": 1e-13}


class Delegating(DraftScheme):
    """Delegates only the required methods to another scheme."""

    def __init__(self, scheme: DraftScheme) -> None:
        self.scheme = scheme

    @property
    def n(self) -> int:
        return self.scheme.n

    @property
    def vocab_size(self) -> int:
        return self.scheme.vocab_size

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        return self.scheme.next_distribution(drawn)


class Shy(DraftScheme):
    """A scheme where a token already drafted is ten times less likely."""

    def __init__(self, draft: npt.ArrayLike, n: int) -> None:
        self.draft, self._n = otlp.as_distribution(draft), n

    @property
    def n(self) -> int:
        return self._n

    @property
    def vocab_size(self) -> int:
        return self.draft.size

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        weights = self.draft.copy()
        weights[np.asarray(drawn)] /= 10.0
        result: FloatArray = weights / weights.sum()
        return result


def check_agreement(scheme: DraftScheme, order: npt.NDArray[np.int64]) -> None:
    """Check derived methods against the list of tuples, and the list against the scheme."""
    own = Delegating(scheme)
    check_scheme(own, order)
    check_renaming(own)
    every = np.array(list(product(range(scheme.vocab_size), repeat=scheme.n)))
    np.testing.assert_allclose(own.probability(every), scheme.probability(every), **CLOSE)
    for row in every[:: max(1, len(every) // 20)]:
        # Skip laws with a token whose conditional probability underflows.
        if own.possible(row) != scheme.possible(row):
            assert float(scheme.probability(row)) == 0.0


@pytest.mark.parametrize("kind", SCHEMES)
def test_what_is_derived_agrees_with_the_closed_forms(kind: str) -> None:
    @given(SCHEMES[kind], st.randoms(use_true_random=False))
    @examples(10)
    def check(problem: otlp.Problem, rng: random.Random) -> None:
        order = list(range(problem.vocab_size))
        rng.shuffle(order)
        check_agreement(problem.drafts, np.array(order))

    check()


@pytest.mark.parametrize("name", [k for k, v in DEGENERATE.items() if v.vocab_size**v.n <= 300])
def test_what_is_derived_agrees_at_the_edges(name: str) -> None:
    scheme = DEGENERATE[name].drafts
    check_agreement(scheme, np.arange(scheme.vocab_size)[::-1].copy())


@pytest.mark.parametrize(
    "scheme",
    [Shy([0.5, 0.3, 0.2], 3), Delegating(otlp.WithoutReplacement([0.6, 0.2, 0.15, 0.05], 3))],
)
def test_derived_samples_follow_the_law(scheme: DraftScheme) -> None:
    check_samples(scheme)


@pytest.mark.parametrize("solver", ["auto", "max-flow", "orderings", "recursive-rejection"])
def test_a_scheme_of_ones_own_is_solved(solver: str) -> None:
    p, q = np.random.default_rng(1).dirichlet(np.ones(4), size=2)
    # a token that is never drafted: the scheme is restricted
    problem = otlp.Problem(np.append(p, 0.2) / 1.2, Shy(np.append(q, 0.0), 2))
    solution = otlp.solve(problem, solver)
    check_solution(solution)
    if solver != "recursive-rejection":
        assert solution.acceptance == pytest.approx(subset_selection(problem)[0], abs=2e-6)


@pytest.mark.parametrize("algorithm", ["recursive-rejection", "traversal", "optimal"])
def test_trees_are_drafted_by_a_scheme_of_ones_own(algorithm: str) -> None:
    draft, target = random_pair(3, 3, np.random.default_rng(4))
    drafting = tree_shape([-1, 0, 0, 1], Shy)
    assert drafting.kind_name == "Shy" and not drafting.is_iid_paths
    for tree, _ in draft_trees(draft, drafting):
        assert isinstance(tree.schemes[0], Shy)
    law = round_law(draft, target, drafting, ALGORITHMS[algorithm])
    wanted = target.joint(law.tokens.ndim)
    np.testing.assert_allclose(law.tokens, wanted, rtol=0.0, atol=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    large = Shy(np.full(2_000, 1 / 2_000), 3)
    assert float(large.probability([0, 1, 2])) > 0.0
    assert large.sample(np.random.default_rng(0)).shape == (3,)
    with pytest.raises(SizeLimitError, match="limit"):
        large.enumerate_tuples(memory_limit=10**6)
    assert large.tuple_count() == 8e9


def test_a_wrong_scheme_is_told_so() -> None:
    class Wrong(Shy):
        def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
            return self.draft / (1.0 + np.size(drawn))

    class Short(Shy):
        def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
            return self.draft[:2] / self.draft[:2].sum()

    with pytest.raises(InvalidInputError, match=r"after \[0\] must sum to 1 .*, got 0.5"):
        Wrong([0.5, 0.5], 2).enumerate_tuples()
    with pytest.raises(InvalidInputError, match=r"must have V = 3 tokens, got \d"):
        Short([0.5, 0.3, 0.2], 2).enumerate_tuples()
    with pytest.raises(InvalidInputError, match=r"no token left after \[1, 0\]"):
        Exhausted(otlp.WithoutReplacement([0.3, 0.7], 2)).probability([1, 0, 0])
    with pytest.raises(UnsupportedProblemError, match="top_k"):
        Shy([0.5, 0.5], 2).top_k(1)


class SinglePrecision(DraftScheme):
    """Independent drafts whose probabilities are not exactly normalised."""

    n, vocab_size = np.int64(2), np.int64(3)  # type: ignore[assignment]
    drafts: Any = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]], np.float32) * np.float32(1.0005)

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        return self.drafts[np.size(drawn)]

    @property
    def independent_drafts(self) -> FloatArray:
        return self.drafts


class Rows(SinglePrecision):
    """Drafts as lists."""

    drafts = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])

    def next_distribution(self, drawn: npt.ArrayLike) -> list[float]:  # type: ignore[override]
        return self.drafts[np.size(drawn)].tolist()

    @property
    def independent_drafts(self) -> list[list[float]]:  # type: ignore[override]
        return self.drafts.tolist()


class Dependent(SinglePrecision):
    """The same drafts, not known to be independent."""

    @property
    def independent_drafts(self) -> None:
        return None


@pytest.mark.parametrize("kind", [SinglePrecision, Rows, Dependent])
@pytest.mark.parametrize("size", [3, 4])
def test_drafts_are_normalised(kind: type[DraftScheme], size: int) -> None:
    """Plans without a certificate follow the target."""
    scheme = kind().restrict([2, 0, 1], size) if size > 3 else kind()
    problem = otlp.Problem([0.1, 0.6, 0.3, 0.0][:size], scheme)
    tuples = problem.drafts.enumerate_tuples()
    for name in ("auto", "recursive-rejection", "naive", "random-weights", "orderings"):
        solver = otlp.solvers.make_solver(name)
        if solver.supports(problem):
            plan = solver.prepare(problem)
            output = tuples.mass @ np.array([plan.conditional(row) for row in tuples.tokens])
            np.testing.assert_allclose(output, problem.target, rtol=0.0, atol=1e-14)
            assert otlp.solve(problem, name).guarantee >= otlp.Guarantee.LOSSLESS


def test_independent_drafts_of_another_size_are_refused() -> None:
    class Short(SinglePrecision):
        @property
        def independent_drafts(self) -> FloatArray:
            return self.drafts[:1]

    with pytest.raises(InvalidInputError, match=r"must have shape \(2, 3\), got rows of \[3\]"):
        otlp.solve(otlp.Problem([0.1, 0.6, 0.3], Short()))


class Exhausted(Delegating):
    """A scheme with one draft more than tokens."""

    @property
    def n(self) -> int:
        return self.scheme.n + 1

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        return None if np.size(drawn) >= self.scheme.n else self.scheme.next_distribution(drawn)


def test_a_drafting_that_the_scheme_cannot_do_is_refused_at_once() -> None:
    with pytest.raises(InvalidInputError, match="pairs"):
        ShapedDrafting((-1, 0), "hub")
    with pytest.raises(InvalidInputError, match=r"draft scheme must be .*, got 'hubs'"):
        tree_shape([-1, 0, 0], "hubs")
