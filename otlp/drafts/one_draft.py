"""Base class of schemes whose drafts come from one distribution q, such as `IID` and `Greedy`."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from otlp import checks, distribution
from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray, Mask, as_distribution, frozen, stored
from otlp.drafts.scheme import SizedScheme, rename
from otlp.errors import TooFewTokensError
from otlp.numerics.ascending import by_ratio
from otlp.numerics.minimum_norm import best_prefix_of


class OneDraft(SizedScheme):
    """n drafts from one distribution q; n different tokens unless overridden.

    Parameters
    ----------
    draft : array_like, shape (V,)
        The draft distribution q.
    n : int
        Number of drafts, at least 1.
    """

    def __init__(self, draft: npt.ArrayLike, n: int) -> None:
        given = as_distribution(draft, "draft")
        self.n = checks.check_n(n)
        self.draft: FloatArray = self._check_support(given)
        self.vocab_size = self.draft.size

    def _check_support(self, draft: FloatArray) -> FloatArray:
        """Check that q has at least n tokens, and return q.

        Raises
        ------
        TooFewTokensError
            If q has fewer tokens; the message states both numbers.
        """
        support = int(np.count_nonzero(draft))
        if support < self.n:
            raise TooFewTokensError(self.n, support)
        return draft

    @property
    def support(self) -> Mask:
        """Tokens of positive q; `mean_draft` could underflow for a subnormal probability."""
        return self.draft > 0.0

    @cached_property
    @own_float_errors
    def mean_draft(self) -> FloatArray:
        """Mean over the places of the distribution of the token there, shape (V,)."""
        return frozen(self.inclusion / self.n)

    def best_subset(self, target: FloatArray) -> Mask:
        """Return H*, the tokens of least p/q (Global Resolution, section S); O(V log V)."""
        order = by_ratio(target, self.draft)
        _, length = best_prefix_of(target, self.priority_marginals(order), order)
        subset = self.support.copy()
        subset[order[:length]] = False
        return subset

    def top_k(self, k: int) -> Self:
        """Return the scheme for q cut to its k most likely tokens.

        Raises
        ------
        TooFewTokensError
            If the n tokens must be different, and fewer than n are left.
        """
        return self._with(draft=frozen(self._check_support(distribution.top_k(self.draft, k))))

    def _renamed(self, tokens: IntArray, vocab_size: int) -> Self:
        return self._with(draft=frozen(rename(self.draft, tokens, vocab_size)))

    def _with(self, draft: FloatArray, **changed: Any) -> Self:
        """Return a copy for another q, without the cached properties of the old q."""
        made = object.__new__(type(self))
        made.__dict__ = {**stored(self), **changed, "vocab_size": draft.size, "draft": draft}
        return made
