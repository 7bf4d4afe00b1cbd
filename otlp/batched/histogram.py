"""Verification without a sort: tokens of nearly equal ratio share a bin, and so a score law.

The bins are read off the bits of p / q: its exponent and ten bits of its fraction.  All tokens
of a bin are scored alike, with the bin's mean ratio, so the selection law y = q clip(ratio of
the bin, c, C) is known exactly and the output follows p exactly.  Only acceptance is lost, at
most `certified_loss`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, prepare, uniforms
from otlp.batched.verify import select
from otlp.errors import InvalidInputError

__all__ = ["FRACTION_BITS", "Bins", "bin_coupling", "certified_loss", "verify_histogram"]

FRACTION_BITS = 10
"""Bits of the fraction that tell bins apart: 2^10 bins an octave, some 17,000 in all."""

OCTAVES_BELOW = 14
"""Ratios below 2^-14 share one bin."""


def certified_loss(fraction_bits: int = FRACTION_BITS) -> float:
    """Most acceptance that the bins can cost: 2.6e-4 for ten bits.

    Replacing p by its mean pbar over the bins raises the optimum, since it leaves p of every
    union of bins, and straightens it in between.  The plan for pbar accepts
    sum min(p, y) >= sum min(pbar, y) - sum (pbar - p)^+.  In a bin of ratios within [a, b],
    sum (pbar - p)^+ <= q(bin) (b - a) / 4, where b - a <= a / 2^bits, or 2^-14 in the lowest.
    """
    return 2.0 ** -(fraction_bits + 2) + 2.0 ** -(OCTAVES_BELOW + 2)


class Bins(NamedTuple):
    """The bins of each row.

    Attributes
    ----------
    coupling : Coupling
        Of the M bins.
    of_token : Tensor, shape (B, V), int64
        The bin of every token.
    """

    coupling: Coupling
    of_token: Tensor


def verify_histogram(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    fraction_bits: int = FRACTION_BITS,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts a row, losslessly, nearly at the optimal acceptance.

    The other parameters, the results and the errors are those of `otlp.batched.verify`.

    Parameters
    ----------
    fraction_bits : int
        Fineness of the bins, 0 to 23; the acceptance is within ``certified_loss(fraction_bits)``
        of the optimum, and the output law is exact for every choice.

    Notes
    -----
    No sort: two scattered sums into the bins and some ten passes over (B, V).
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator)
    coupling, index = bin_coupling(rows, fraction_bits)
    law = coupling.ratio.gather(1, index)
    selected = select(rows, coupling, rows.at_drafts(index), numbers)
    law.mul_(rows.draft).div_(rows.draft_sum)
    return accept_or_replace(rows, law, selected, numbers[:, -2], numbers[:, -1])


def bin_coupling(rows: Rows, fraction_bits: int = FRACTION_BITS) -> Bins:
    """Sort the tokens into bins by the bits of their ratio, and couple the bins.

    Raises
    ------
    InvalidInputError
        If `fraction_bits` is not within 0 to 23.
    """
    if not 0 <= fraction_bits <= 23:
        raise InvalidInputError(f"fraction_bits is {fraction_bits}: a float32 has 0 to 23 of them")
    shift = 23 - fraction_bits
    lowest = (127 - OCTAVES_BELOW) << fraction_bits
    ratio = rows.ratio()
    count = (OCTAVES_BELOW + rows.tokens.shape[1].bit_length()) << fraction_bits
    bits = ratio.float().view(torch.int32) >> shift
    index = bits.sub_(lowest).clamp_(0, count - 1).long()

    draft = rows.draft.double() / rows.draft_sum
    empty = draft.new_zeros(draft.shape[0], count)
    mass = empty.scatter_add(1, index, draft)
    held = empty.scatter_add(1, index, draft.mul_(ratio))
    # the mean lies in the bin; clamping it there also gives empty bins a ratio in order
    edges = torch.arange(lowest, lowest + count + 1, device=draft.device, dtype=torch.int32)
    edges = (edges << shift).view(torch.float32).double()
    mean = torch.clamp(held / mass.clamp(min=1e-300), edges[:-1], edges[1:])
    mean[:, 0] = held[:, 0] / mass[:, 0].clamp(min=1e-300)
    return Bins(couple(mean, mass, torch.ones_like(rows.n), rows.n.clamp(min=1.0)), index)
