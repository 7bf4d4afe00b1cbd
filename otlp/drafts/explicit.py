"""Any distribution of n drafted tokens, as a list of tuples and their probabilities."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import MEMORY_LIMIT, as_array, check_memory, whole_number
from otlp.distribution import (
    FloatArray,
    IntArray,
    Mask,
    as_distribution,
    frozen,
    invert_cdf,
    sum_by,
)
from otlp.drafts.scheme import SizedScheme
from otlp.drafts.token_sets import DraftTuples, TokenSets
from otlp.errors import InvalidDistributionError, InvalidInputError


class Explicit(SizedScheme):
    """A draft distribution listed tuple by tuple; the order of tokens within a tuple matters.

    Parameters
    ----------
    tuples : array_like of int, shape (m, n)
        The tuples that can be drafted.  Probabilities of duplicate rows are added; rows of
        probability zero are dropped.
    probabilities : array_like, shape (m,)
        Probabilities of the tuples.
    vocab_size : int, optional
        Vocabulary size V; default one more than the largest token id.

    Attributes
    ----------
    tuples : DraftTuples
        The distinct tuples of positive probability.

    Raises
    ------
    InvalidInputError
        If the shapes do not agree, or the tokens are not integers.
    TokenOutOfRangeError
        If a token id lies outside [0, V).
    InvalidDistributionError
        If the probabilities are not a probability vector.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Explicit([[0, 1], [0, 2]], [0.6, 0.4])
    >>> drafts.mass_within([0, 1])
    0.6
    """

    def __init__(
        self, tuples: npt.ArrayLike, probabilities: npt.ArrayLike, vocab_size: int | None = None
    ) -> None:
        tokens = as_array(tuples, "tuples")
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
            raise InvalidInputError(
                "tuples must be an integer array of shape (m, n) with m, n >= 1, got shape "
                f"{tokens.shape} and type {tokens.dtype}"
            )
        mass = as_distribution(probabilities, "probabilities")
        if mass.size != len(tokens):
            raise InvalidDistributionError(
                f"probabilities must have one entry per tuple, {len(tokens)}, got {mass.size}"
            )
        n = checks.check_n(tokens.shape[1])
        size = max(1, int(tokens.max()) + 1) if vocab_size is None else vocab_size
        size = whole_number(size, "vocab_size")
        check_memory(f"a distribution over {size} tokens", 8 * size, MEMORY_LIMIT)
        tokens = checks.check_tuples(tokens, n, size)
        distinct, index = np.unique(tokens[mass > 0.0], axis=0, return_inverse=True)
        merged = sum_by(index.reshape(-1), mass[mass > 0.0], len(distinct))
        self.n, self.vocab_size = n, size
        self.tuples = DraftTuples(frozen(distinct), frozen(merged))

    def __repr__(self) -> str:
        """Return the name and sizes of the scheme."""
        count = len(self.tuples.mass)
        return f"Explicit({count} tuples, vocabulary {self.vocab_size:,}, n={self.n})"

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Return the next token's distribution among tuples that start with `drawn`; O(m n)."""
        tokens = checks.check_drawn(drawn, self.n, self.vocab_size)
        listed = self.tuples
        same = (listed.tokens[:, : tokens.size] == tokens).all(axis=1)
        if not same.any():
            return None
        mass = sum_by(listed.tokens[same, tokens.size], listed.mass[same], self.vocab_size)
        result: FloatArray = mass / mass.sum()
        return result

    @cached_property
    def support(self) -> Mask:
        """Tokens of the listed tuples; `mean_draft` could underflow for a subnormal mass."""
        mask = np.zeros(self.vocab_size, dtype=bool)
        mask[self.tuples.tokens] = True
        return mask

    def _probability(self, rows: IntArray) -> FloatArray:
        """Look up each row; O(n) each, after O(m n) once."""
        found = np.array([self.tuples.find(row) for row in rows], dtype=np.int64)
        return np.where(found >= 0, self.tuples.mass[found], 0.0)

    def _possible(self, tokens: IntArray) -> bool:
        return self.tuples.find(tokens) >= 0

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # By inversion; O(m) per call.
        cumulative = np.cumsum(self.tuples.mass)
        return self.tuples.tokens[invert_cdf(cumulative, rng.random(size))]

    def tuple_count(self) -> float:
        """Return the number of listed tuples."""
        return float(self.tuples.mass.size)

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """Return the listed tuples."""
        needed = self.tuples.tokens.nbytes + self.tuples.mass.nbytes
        check_memory("listing the tuples", needed, memory_limit)
        return self.tuples

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the tuples, merged by their set of distinct tokens; computed once."""
        self.enumerate_tuples(memory_limit)
        return self._sets

    def top_k(self, k: int) -> Explicit:
        """Return the k most likely tuples, renormalised; ties go to the first in token order."""
        order = np.argsort(-self.tuples.mass, kind="stable")[: whole_number(k, "top-k size")]
        mass = self.tuples.mass[order]
        return Explicit(self.tuples.tokens[order], mass / mass.sum(), self.vocab_size)

    def _renamed(self, tokens: IntArray, vocab_size: int) -> Explicit:
        names = np.full(self.vocab_size, -1, dtype=np.int64)
        names[tokens] = np.arange(tokens.size)
        return Explicit(names[self.tuples.tokens], self.tuples.mass, vocab_size)
