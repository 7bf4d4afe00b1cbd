"""Result of decoding on the device."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.distribution import IntArray


@dataclass(frozen=True, eq=False)
class Decoded:
    """Result of `DeviceLoop.decode`: texts, target calls and times.

    Attributes
    ----------
    texts : tuple of ndarray of int64
        New tokens of each prompt.
    calls : ndarray of int64, shape (B,)
        Number of target calls for each text, without the prefill of the prompt.
    rounds : int
        Number of rounds.
    seconds, processor_seconds : float
        Wall time and processor time of all rounds, without prefill and compilation.
    parts : dict of float
        Seconds of draft, target, verification and rest, by the clock of the rounds; empty on a GPU,
        which runs asynchronously.

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
        """Total number of new tokens."""
        return sum(text.size for text in self.texts)
