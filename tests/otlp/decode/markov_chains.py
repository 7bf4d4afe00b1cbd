"""Models whose distribution depends only on the last token."""

from __future__ import annotations

import numpy as np

from otlp.decode import (
    TextModel,
)
from otlp.distribution import FloatArray, IntArray


class Markov(TextModel):
    """A model whose distribution is a function of the last token."""

    def __init__(self, rows: FloatArray, name: str, ends: tuple[int, ...] = ()) -> None:
        super().__init__(len(rows), name)
        self.rows, self._ends = rows / rows.sum(axis=1, keepdims=True), ends

    @property
    def ends(self) -> tuple[int, ...]:
        return self._ends

    def distribution(self, text: IntArray) -> FloatArray:
        found: FloatArray = self.rows[text[-1]]
        return found


def chains(size: int, seed: int, ends: tuple[int, ...] = ()) -> tuple[Markov, Markov]:
    """Return a target, and a draft with tokens of probability 0."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.7, size=(size, size)) + 1e-3
    other = rows * np.exp(rng.normal(size=rows.shape)) * (rng.random(rows.shape) < 0.8)
    return Markov(other + np.eye(size) * 1e-3, "draft"), Markov(rows, "target", ends)
