"""Bins of p / q, with integer sums of the masses of tokens of similar ratio.

A bin contains the tokens whose float32 ratios share the exponent and the first bits of the
mantissa.  Bins are in ascending order of ratio and replace a sort.  Sums of integers do not depend
on the order of their terms, so a row has the same sums in every batch, on every device and in every
run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SIZE = 2048
"""Number of bins per row."""

FEW_DRAFTS = 8
"""Maximum n for bins over 16 octaves with 128 bins each; larger n use 32 octaves with 64 each."""

UNIT = 2.0**60
"""Number of integer units in mass 1; int64 sums overflow from mass 8 on."""

MANTISSA, BIAS = 23, 127
"""Number of mantissa bits of a float32, and the bias of its exponent."""


class Layout(NamedTuple):
    """Assignment of ratios to bins.

    Attributes
    ----------
    bits : int
        Binary logarithm of the number of bins per octave.
    least : int
        Exponent of the ratios in the first bin, which also contains all smaller ratios.
    size : int
        Number of bins K; the last bin also contains all larger ratios.
    """

    bits: int
    least: int
    size: int

    @property
    def shift(self) -> int:
        """Number of low bits of a float32 that do not determine its bin."""
        return MANTISSA - self.bits

    @property
    def offset(self) -> int:
        """Leading bits of 2^least as an integer, subtracted so that bins start at 0."""
        return (BIAS + self.least) << self.bits

    def bins(self, target: Tensor, draft: Tensor) -> Tensor:
        """Return the bin of each token, int64; arbitrary where p and q are 0."""
        bits = (target / draft).float().view(torch.int32)
        return ((bits >> self.shift) - self.offset).clamp_(0, self.size - 1).long()

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the smallest ratios of each bin and of the next bin; float64, shape (K,)."""
        first = torch.arange(self.size, dtype=torch.int32, device=device) + self.offset
        low = (first << self.shift).view(torch.float32).double()
        low[0] = 0.0
        high = low.roll(-1)
        high[-1] = torch.inf
        return low, high


def layout_for(max_n: int, size: int = SIZE) -> Layout:
    """Return the layout for up to `max_n` drafts; ratios above `max_n` share the last bin."""
    octaves = 16 if max_n <= FEW_DRAFTS else 32
    bits = (size // octaves).bit_length() - 1
    return Layout(bits, max_n.bit_length() - octaves, size)


def units(values: Tensor) -> Tensor:
    """Convert masses to integer units of 1 / `UNIT`, rounded down; int64."""
    return (values * UNIT).long()


def masses(values: Tensor, bins: Tensor, size: int) -> Tensor:
    """Sum the masses (B, V) in each bin, given the bins (B, V); int64, shape (B, K)."""
    empty = torch.zeros((len(values), size), dtype=torch.int64, device=values.device)
    return empty.scatter_add_(1, bins, units(values))
