"""The n - 1 most likely tokens, and one token sampled from the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.distribution import FloatArray, IntArray, Mask, invert_cdf
from otlp.drafts.top_and_one import TopAndOne, point_mass


class Greedy(TopAndOne):
    """The tuple (a_1, ..., a_(n-1), x): the top n - 1 tokens of q, and x from q without them.

    Parameters
    ----------
    draft : array_like, shape (V,)
        The draft distribution q.
    n : int
        Number of drafts, at least 1; for n = 1 the only draft is sampled from q.

    Raises
    ------
    InvalidDistributionError
        If `draft` is not a probability vector.
    InvalidInputError
        If `n` is not an integer of at least 1, or larger than the support of q.

    Notes
    -----
    The greedy construction of Hu et al. 2025 (Global Resolution, Appendix O).

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Greedy([0.5, 0.3, 0.2], n=2)
    >>> drafts.top.tolist(), drafts.rest.round(3).tolist()
    ([0], [0.0, 0.6, 0.4])
    """

    def prefix_count(self) -> float:
        """Return 1, since the first n - 1 tokens are always the top tokens."""
        return 1.0

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return a point mass at the next top token, or `rest` after all top tokens."""
        place = checks.check_drawn(drawn, self.n, self.vocab_size).size
        if place < self.top.size:
            return point_mass(int(self.top[place]), self.vocab_size)
        return self.rest

    def _probability(self, rows: IntArray) -> FloatArray:
        return np.where((rows[:, :-1] == self.top).all(axis=1), self.rest[rows[:, -1]], 0.0)

    def _possible_each(self, rows: IntArray) -> Mask:
        return self._probability(rows) > 0.0  # cannot underflow: not a product of probabilities

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # By inversion; O(V) per call, and O(n + log V) per tuple.
        last = invert_cdf(np.cumsum(self.rest), rng.random(size))
        head = np.broadcast_to(self.top, (*last.shape, self.top.size))
        return np.concatenate((head, last[..., None]), axis=-1)
