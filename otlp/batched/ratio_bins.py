"""Bins of p / q: masses of tokens of about one ratio, added up in integers.

A bin holds the tokens whose ratio, as a number in float32, begins with the same bits: the exponent
and the first bits of the mantissa.  Bins are in the order of their ratios, so they take the place
of a sort.  Sums of integers do not depend on the order of their terms: a row gives the same sums
beside other rows, on every device and in every run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SIZE = 2048
"""Bins of a row."""

FEW_DRAFTS = 8
"""For up to so many drafts bins cover 16 octaves, 128 bins each; for more, 32 octaves, 64 each."""

UNIT = 2.0**60
"""Masses are counted in units of 1 / `UNIT`; int64 holds rows that sum to less than 8."""

MANTISSA, BIAS = 23, 127
"""Of a number in float32: bits of its mantissa, and what is added to its exponent."""


class Layout(NamedTuple):
    """Which ratios share a bin.

    Attributes
    ----------
    bits : int
        An octave has 2^bits bins.
    least : int
        Exponent of the ratios in the first bin, which holds all smaller ratios, too.
    size : int
        Number of bins, K; the last one holds all larger ratios, too.
    """

    bits: int
    least: int
    size: int

    @property
    def shift(self) -> int:
        """Bits of a float32 that do not name its bin."""
        return MANTISSA - self.bits

    @property
    def offset(self) -> int:
        """The first bits of 2^least, as an integer: what is taken off to count bins from 0."""
        return (BIAS + self.least) << self.bits

    def bins(self, target: Tensor, draft: Tensor) -> Tensor:
        """Bin of each token, int64; of no meaning where p and q are 0."""
        bits = (target / draft).float().view(torch.int32)
        return ((bits >> self.shift) - self.offset).clamp_(0, self.size - 1).long()

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Least ratio of each bin, and of the next one; float64, shape (K,) each."""
        first = torch.arange(self.size, dtype=torch.int32, device=device) + self.offset
        low = (first << self.shift).view(torch.float32).double()
        low[0] = 0.0
        high = low.roll(-1)
        high[-1] = torch.inf
        return low, high


def layout_for(most: int, size: int = SIZE) -> Layout:
    """Lay out bins for up to `most` drafts: larger ratios count as that number and share one."""
    octaves = 16 if most <= FEW_DRAFTS else 32
    bits = (size // octaves).bit_length() - 1
    return Layout(bits, most.bit_length() - octaves, size)


def units(values: Tensor) -> Tensor:
    """Count masses in units of 1 / `UNIT`, rounded down; int64."""
    return (values * UNIT).long()


def masses(values: Tensor, bins: Tensor, size: int) -> Tensor:
    """Add up masses (B, V) by bins (B, V); int64, shape (B, K)."""
    empty = torch.zeros((len(values), size), dtype=torch.int64, device=values.device)
    return empty.scatter_add_(1, bins, units(values))
