"""How distributions are cut where models are served: top-k, then top-p, then min-p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray, min_p, top_k, top_p

SAMPLING = "sampling_top_k", "sampling_top_p", "sampling_min_p"
"""What `Capture.distributions` and the commands call them."""


@dataclass(frozen=True)
class SamplingCuts:
    """Cuts of a distribution after its temperature, in the order of transformers.

    vLLM applies min-p first.  The two orders keep different tokens only where both top-p and min-p
    cut.

    Parameters
    ----------
    top_k : int, optional
        Keep so many likeliest tokens.
    top_p : float, optional
        Then keep the fewest likeliest tokens whose mass reaches this.
    min_p : float, optional
        Then keep the tokens that are at least so likely in units of the likeliest.

    Raises
    ------
    InvalidInputError
        If k is below 1, top-p not in (0, 1], or min-p not in [0, 1].
    """

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        self.cut(np.ones(1))

    @property
    def any(self) -> bool:
        """Whether something is cut."""
        return self.top_k is not None or self.top_p not in (None, 1.0) or bool(self.min_p)

    def cut(self, probabilities: FloatArray) -> FloatArray:
        """Cut a vector of shape (V,); O(V log V)."""
        found = probabilities
        if self.top_k is not None:
            found = top_k(found, self.top_k)
        if self.top_p is not None:
            found = top_p(found, self.top_p)
        return found if self.min_p is None else min_p(found, self.min_p)
