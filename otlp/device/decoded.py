"""What a loop on the device decoded, and what that took."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.distribution import IntArray


@dataclass(frozen=True, eq=False)
class Decoded:
    """What a loop decoded, and what that took.

    Attributes
    ----------
    texts : tuple of ndarray of int64
        The new tokens of each prompt.
    calls : ndarray of int64, shape (B,)
        Target calls that each text took, without the reading of the prompt.
    rounds : int
    seconds, processor_seconds : float
        Wall time and processor time of all rounds, without prompts and compilation.
    parts : dict of float
        Time of draft, target, verification and rest by the loop's clock; empty on a GPU, which
        works on by itself.

    Examples
    --------
    >>> from otlp.device import Decoded
    >>> import numpy as np
    >>> Decoded((np.array([1, 2]),), np.array([1]), 1, 0.5, 0.5, {}).tokens
    2
    """

    texts: tuple[IntArray, ...]
    calls: IntArray
    rounds: int
    seconds: float
    processor_seconds: float
    parts: dict[str, float]

    @property
    def tokens(self) -> int:
        """New tokens of all texts."""
        return sum(text.size for text in self.texts)
