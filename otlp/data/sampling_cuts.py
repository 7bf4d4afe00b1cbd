"""Sampling cuts of served models: top-k, then top-p, then min-p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray, min_p, top_k, top_p

SAMPLING = "sampling_top_k", "sampling_top_p", "sampling_min_p"
"""Names of the cuts in `Capture.distributions` and in the commands."""


@dataclass(frozen=True)
class SamplingCuts:
    """Cuts of a distribution after the temperature, in the order of transformers.

    vLLM applies min-p first.  The two orders differ only if both top-p and min-p remove tokens.

    Parameters
    ----------
    top_k : int, optional
        Number of most likely tokens to keep.
    top_p : float, optional
        Mass of the smallest set of most likely tokens to keep after top-k.
    min_p : float, optional
        Smallest probability of the tokens to keep after top-p, as a fraction of the largest.

    Raises
    ------
    InvalidInputError
        If k is below 1, top-p is not in (0, 1], or min-p is not in [0, 1].
    """

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        self.cut(np.ones(1))

    @property
    def any(self) -> bool:
        """Whether at least one cut is active."""
        return self.top_k is not None or self.top_p not in (None, 1.0) or bool(self.min_p)

    def cut(self, probabilities: FloatArray) -> FloatArray:
        """Return the cut and renormalised probabilities, shape (V,); O(V log V)."""
        found = probabilities
        if self.top_k is not None:
            found = top_k(found, self.top_k)
        if self.top_p is not None:
            found = top_p(found, self.top_p)
        return found if self.min_p is None else min_p(found, self.min_p)
