"""n independent drafts, each from its own distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from otlp import checks, distribution
from otlp.checks import MEMORY_LIMIT, check_memory, own_float_errors
from otlp.distribution import FloatArray, IntArray, Mask, as_distribution, frozen, invert_cdf
from otlp.drafts.scheme import SizedScheme, rename
from otlp.drafts.token_sets import DraftTuples, as_float
from otlp.errors import InvalidInputError
from otlp.numerics.compiled import compiled


class Independent(SizedScheme):
    """n tokens drawn independently, the j-th from the j-th draft distribution.

    Parameters
    ----------
    drafts : sequence of array_like, each of shape (V,)
        The draft distributions q_1, ..., q_n, over one vocabulary.

    Raises
    ------
    InvalidDistributionError
        If a draft distribution is not a probability vector; the message states its index.
    InvalidInputError
        If `drafts` is empty, or if the distributions are over different vocabularies.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Independent([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    >>> float(drafts.probability([0, 2]))
    0.4
    """

    def __init__(self, drafts: Sequence[npt.ArrayLike]) -> None:
        try:
            given = list(drafts)
        except TypeError:
            raise InvalidInputError(
                f"drafts must be a list of draft distributions, got a {type(drafts).__name__}"
            ) from None
        checked = [as_distribution(draft, f"drafts[{j}]") for j, draft in enumerate(given)]
        if not checked:
            raise InvalidInputError("drafts must not be empty: pass at least one distribution")
        sizes = [draft.size for draft in checked]
        if len(set(sizes)) > 1:
            raise InvalidInputError(f"drafts must be over the same vocabulary, got {sizes} tokens")
        checks.check_n(len(checked))
        self.drafts: FloatArray = frozen(np.stack(checked))
        self.n, self.vocab_size = self.drafts.shape

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return the draft distribution of the next place, shape (V,)."""
        place = checks.check_drawn(drawn, self.n, self.vocab_size).size
        return np.asarray(self.drafts[place])

    @property
    def independent_drafts(self) -> FloatArray:
        """The draft distributions, shape (n, V)."""
        return self.drafts

    _independent = independent_drafts  # checked by the constructor

    @cached_property
    @own_float_errors
    def mean_draft(self) -> FloatArray:
        """Mean of the draft distributions, shape (V,)."""
        return frozen(self.drafts.mean(axis=0))

    @cached_property
    def support(self) -> Mask:
        """Tokens of positive probability in some draft; their mean may underflow."""
        return np.asarray((self.drafts > 0.0).any(axis=0))

    @cached_property
    def inclusion(self) -> FloatArray:
        """1 - prod_j (1 - q_j), accurate for tiny q; shape (V,)."""
        with np.errstate(divide="ignore", under="ignore"):
            misses = np.log1p(-np.minimum(self.drafts, 1.0)).sum(axis=0)
            return frozen(-np.expm1(misses))

    @cached_property
    def _by_token(self) -> FloatArray:
        # Store all masses of a token contiguously, since orderings visit tokens in any order.
        return np.ascontiguousarray(self.drafts.T)

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.drafts, axis=1)

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Return prod_j (B_j + q_j) - prod_j B_j for the masses B_j below, as a positive sum.

        O(nV).
        """
        return _priority_marginals(self._by_token, checks.check_order(order, self.vocab_size))

    def _probability(self, rows: IntArray) -> FloatArray:
        return np.asarray(np.prod(self.drafts[np.arange(self.n), rows], axis=1))

    def _possible(self, tokens: IntArray) -> bool:
        return bool((self.drafts[np.arange(self.n), tokens] > 0.0).all())

    def _possible_each(self, rows: IntArray) -> Mask:
        return np.asarray((self.drafts[np.arange(self.n), rows] > 0.0).all(axis=1))

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # By inversion; O(nV) once, then O(n log V) per tuple.
        uniform = rng.random((size, self.n))
        drawn = [invert_cdf(self._cumulative[j], uniform[..., j]) for j in range(self.n)]
        return np.stack(drawn, axis=-1)

    def tuple_count(self) -> float:
        """Return the product of the sizes of the supports."""
        return as_float(prod(np.count_nonzero(self.drafts, axis=1).tolist()))

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability."""
        count = self.tuple_count()
        return product_tuples(self.drafts, f"{count:,.0f}", count, memory_limit)

    def top_k(self, k: int) -> Independent:
        """Return the scheme with each draft cut to its own k most likely tokens, renormalised."""
        return Independent([distribution.top_k(draft, k) for draft in self.drafts])

    def _renamed(self, tokens: IntArray, vocab_size: int) -> Independent:
        return Independent([rename(draft, tokens, vocab_size) for draft in self.drafts])


def product_tuples(drafts: FloatArray, shown: str, count: float, memory_limit: int) -> DraftTuples:
    """List the tuples of independent drafts, `count` of them, in lexicographic order."""
    needed = 8.0 * count * (2 * len(drafts) + 2)
    check_memory(f"listing {shown} tuples", needed, memory_limit)
    tokens, mass, after = [], np.ones(int(count)), int(count)
    for draft in drafts:
        support = np.flatnonzero(draft)
        after //= support.size
        tokens.append(np.tile(np.repeat(support, after), mass.size // (support.size * after)))
        with np.errstate(under="ignore"):
            mass *= draft[tokens[-1]]
    return DraftTuples.positive(np.stack(tokens, axis=1).astype(np.int64), mass)


@compiled
def _priority_marginals(by_token: FloatArray, order: IntArray) -> FloatArray:
    size, n = by_token.shape
    result = np.empty(size)
    below = np.zeros(n)
    for place in range(size - 1, -1, -1):
        token = order[place]
        value, product = 0.0, 1.0
        for j in range(n):
            own = by_token[token, j]
            value = value * (below[j] + own) + own * product
            product *= below[j]
            below[j] += own
        result[token] = value
    return result
