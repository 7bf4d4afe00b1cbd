"""Base class of `Greedy` and `Hub`: the most likely tokens, and one sampled token."""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from otlp import checks, distribution
from otlp.distribution import FloatArray, IntArray, Mask, frozen, renormalise_without
from otlp.drafts.one_draft import OneDraft
from otlp.drafts.scheme import rename
from otlp.numerics.sums import sum_in
from otlp.numerics.top_tokens import top_tokens


class TopAndOne(OneDraft):
    """The top n - 1 tokens of q, and one token x from q without them, in some order.

    Attributes
    ----------
    draft : ndarray, shape (V,)
        The draft distribution q.
    top : ndarray, shape (n - 1,), int64
        The tokens that are always drafted, most likely first; ties go to the lowest token id.
    """

    def __init__(self, draft: npt.ArrayLike, n: int) -> None:
        super().__init__(draft, n)
        self.top: IntArray = frozen(top_tokens(self.draft, self.n - 1))

    @cached_property
    def rest(self) -> FloatArray:
        """The distribution of x: q without the top tokens, normalised; shape (V,)."""
        rest = renormalise_without(self.draft, self.top)
        assert rest is not None, "the support has n tokens"
        return frozen(rest)

    def best_subset(self, target: FloatArray) -> Mask:
        """Return H*: the top tokens, and the tokens with p < q~, the distribution of x; O(V)."""
        subset = np.asarray(target < self.rest)
        subset[self.top] = True
        return subset

    @cached_property
    def inclusion(self) -> FloatArray:
        """Probability of each token being drafted: 1 for top tokens, else that of x; shape (V,)."""
        result = self.rest.copy()
        result[self.top] = 1.0
        return frozen(result)

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Return the law of x down to the first top token, which gets all mass below; O(V)."""
        order = checks.check_order(order, self.vocab_size)
        result = self.rest.copy()
        if self.top.size:
            rank = np.empty(order.size, dtype=np.int64)
            rank[order] = np.arange(order.size)
            first = self.top[np.argmin(rank[self.top])]
            below = order[rank[first] + 1 :]
            result[below] = 0.0
            result[first] = self.rest[below].sum()
        return result

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Return 1 if a top token is in S, else the mass of x in S; O(V)."""
        inside = checks.check_mask(subset, self.vocab_size)
        return 1.0 if inside[self.top].any() else sum_in(self.rest, inside)

    def tuple_count(self) -> float:
        """Return the number of possible tokens x."""
        return float(np.count_nonzero(self.rest))

    def top_k(self, k: int) -> Self:
        """Return the scheme for q cut to its k most likely tokens, with the same top tokens.

        Raises
        ------
        TooFewTokensError
            If k is less than n.
        """
        if checks.whole_number(k, "top-k size") < self.n:
            return super().top_k(k)
        # Renamed top tokens need not be first among tokens of the same probability.
        kept = distribution.top_k(self.rest, k - self.top.size) > 0.0
        kept[self.top] = True
        draft = np.where(kept, self.draft, 0.0)
        return self._with(draft=frozen(draft / draft.sum()))

    def _renamed(self, tokens: IntArray, vocab_size: int) -> Self:
        # Keep the same top tokens in case of ties, independently of the names.
        names = np.full(self.vocab_size, -1, dtype=np.int64)
        names[tokens] = np.arange(tokens.size)
        draft = rename(self.draft, tokens, vocab_size)
        return self._with(draft=frozen(draft), top=frozen(names[self.top]))


def point_mass(token: int, vocab_size: int) -> FloatArray:
    """Return the distribution of a certain token, shape (V,)."""
    result = np.zeros(vocab_size)
    result[token] = 1.0
    return result
