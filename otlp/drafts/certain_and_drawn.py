"""Certain tokens, and further tokens drawn i.i.d. from another distribution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import whole_number
from otlp.distribution import FloatArray, IntArray, as_distribution, frozen
from otlp.drafts.scheme import SizedScheme
from otlp.drafts.top_and_one import point_mass
from otlp.errors import InvalidInputError


class CertainAndDrawn(SizedScheme):
    """The tuple (a_1, ..., a_c, x_1, ..., x_k): certain tokens, then i.i.d. tokens.

    Parameters
    ----------
    certain : array_like of int
        Tokens that are always drafted, in this order.
    rest : array_like, shape (V,)
        Distribution of the other tokens; 0 at the certain tokens.
    drawn : int
        Number of tokens drawn from `rest`.

    Raises
    ------
    InvalidDistributionError
        If `rest` is not a probability vector.
    InvalidInputError
        If a certain token can also be drawn, or there are no drafts.
    """

    def __init__(self, certain: npt.ArrayLike, rest: npt.ArrayLike, drawn: int) -> None:
        self.rest: FloatArray = frozen(as_distribution(rest, "rest"))
        size = self.rest.size
        tokens = checks.check_drawn(certain, size + 1, size)
        self.certain: IntArray = frozen(tokens)
        self.drawn = whole_number(drawn, "the number of drawn tokens", 0)
        self.n, self.vocab_size = checks.check_n(tokens.size + self.drawn), size
        if self.drawn and self.rest[tokens].any():
            raise InvalidInputError("rest must be 0 at the certain tokens: remove them from rest")

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return a point mass at the next certain token, or `rest` after all certain tokens."""
        place = checks.check_drawn(drawn, self.n, self.vocab_size).size
        if place < self.certain.size:
            return point_mass(int(self.certain[place]), self.vocab_size)
        return self.rest

    @property
    def independent_drafts(self) -> FloatArray:
        """Draft distribution of each place, shape (n, V)."""
        points = [point_mass(int(token), self.vocab_size) for token in self.certain]
        return np.stack([*points, *[self.rest] * self.drawn])
