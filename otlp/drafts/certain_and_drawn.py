"""Some tokens that are certain, and more drawn i.i.d. from the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import whole_number
from otlp.distribution import FloatArray, IntArray, as_distribution, frozen
from otlp.drafts.scheme import DraftScheme
from otlp.drafts.top_and_one import point_mass
from otlp.errors import InvalidInputError


class CertainAndDrawn(DraftScheme):
    """The tuple (a_1, ..., a_c, x_1, ..., x_k): certain tokens, and i.i.d. ones.

    Parameters
    ----------
    certain : array_like of int
        Tokens that are always drafted, in this order.
    rest : array_like, shape (V,)
        The distribution of the others, which gives the certain ones probability 0.
    drawn : int
        How many others are drawn.

    Raises
    ------
    InvalidDistributionError
        If `rest` is not a probability vector.
    InvalidInputError
        If a certain token can also be drawn, or there is no draft at all.
    """

    def __init__(self, certain: npt.ArrayLike, rest: npt.ArrayLike, drawn: int) -> None:
        self.rest: FloatArray = frozen(as_distribution(rest, "rest"))
        size = self.rest.size
        tokens = checks.check_drawn(certain, size + 1, size)
        self.certain: IntArray = frozen(tokens)
        self.drawn = whole_number(drawn, "the number of drawn tokens", 0)
        checks.check_n(self.n)
        if self.drawn and self.rest[tokens].any():
            raise InvalidInputError("a certain token can also be drawn: take it out of the rest")

    @property
    def n(self) -> int:
        """Number of drafted tokens."""
        return int(self.certain.size) + self.drawn

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return int(self.rest.size)

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """The next certain token; after all of them, the rest."""
        place = checks.check_drawn(drawn, self.n, self.vocab_size).size
        if place < self.certain.size:
            return point_mass(int(self.certain[place]), self.vocab_size)
        return self.rest

    @property
    def independent_drafts(self) -> FloatArray:
        """Distributions of the places, shape (n, V)."""
        points = [point_mass(int(token), self.vocab_size) for token in self.certain]
        return np.stack([*points, *[self.rest] * self.drawn])
