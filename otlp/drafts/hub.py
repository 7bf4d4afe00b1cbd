"""Pairs of SpecHub: the most likely token and one other token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts.token_sets import DraftTuples
from otlp.drafts.top_and_one import TopAndOne, point_mass
from otlp.errors import InvalidInputError


class Hub(TopAndOne):
    """Pairs (x, a) with probability q_x and (a, x) with probability q_a q_x / (1 - q_a).

    a is the most likely token, the hub; x is any other token.

    Parameters
    ----------
    draft : array_like, shape (V,)
        The draft distribution q.
    n : int
        Number of drafts, which must be 2; accepted so that all schemes are built from q and n.

    Raises
    ------
    InvalidDistributionError
        If `draft` is not a probability vector.
    InvalidInputError
        If q is a point mass, which has no second token, or if n is not 2.

    Notes
    -----
    SpecHub, section 4.  The set {a, x} has the same distribution as for ``Greedy(q, n=2)``; the
    order of the two tokens, on which SpecHub's verification depends, is distributed differently.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Hub([0.5, 0.3, 0.2])
    >>> float(drafts.probability([1, 0])), float(drafts.probability([0, 1]))
    (0.3, 0.3)
    """

    def __init__(self, draft: npt.ArrayLike, n: int = 2) -> None:
        if n != 2:
            raise InvalidInputError(f"hub drafts must be pairs, n = 2, got n = {n!r}")
        super().__init__(draft, 2)

    @property
    def hub(self) -> int:
        """The token a; ties go to the lowest token id."""
        return int(self.top[0])

    @property
    def before_hub(self) -> FloatArray:
        """Probabilities q_x of the pairs (x, a), by x; zero at a; shape (V,)."""
        result = self.draft.copy()
        result[self.hub] = 0.0
        return result

    @property
    def after_hub(self) -> FloatArray:
        """Probabilities q_a q_x / (1 - q_a) of the pairs (a, x), by x; zero at a; shape (V,)."""
        result: FloatArray = self.draft[self.hub] * self.rest
        return result

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return q; after the hub, q without the hub; after another token, all mass at the hub."""
        tokens = checks.check_drawn(drawn, self.n, self.vocab_size)
        if not tokens.size:
            return self.draft
        return self.rest if tokens[0] == self.hub else point_mass(self.hub, self.vocab_size)

    def _probability(self, rows: IntArray) -> FloatArray:
        first, second, hub = rows[:, 0], rows[:, 1], self.hub
        after = np.where(first == hub, self.draft[hub] * self.rest[second], 0.0)
        return np.where((second == hub) & (first != hub), self.draft[first], after)

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # By inversion; O(V) per call, and O(log V) per pair.
        cumulative = np.cumsum(np.concatenate((self.before_hub, self.after_hub)))
        drawn = invert_cdf(cumulative, rng.random(size))
        other, after = drawn % self.vocab_size, drawn >= self.vocab_size
        return np.stack(
            (np.where(after, self.hub, other), np.where(after, other, self.hub)), axis=-1
        )

    def tuple_count(self) -> float:
        """Return the number of pairs, two for each possible x."""
        return 2.0 * super().tuple_count()

    def prefix_count(self) -> float:
        """Return the number of tokens of the support of q, each of which can be first."""
        return float(np.count_nonzero(self.draft))

    def set_count(self) -> tuple[float, float]:
        """Return the number of sets, one for each possible x, and of their members."""
        count = super().tuple_count()
        return count, 2.0 * count

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List the pairs (x, a), then the pairs (a, x)."""
        check_memory("listing the pairs", 8.0 * self.tuple_count() * 3, memory_limit)
        others = np.flatnonzero(self.rest).astype(np.int64)
        before = np.column_stack((others, np.full_like(others, self.hub)))
        listed = np.concatenate((before, before[:, ::-1]))
        return DraftTuples.positive(listed, self._probability(listed))
