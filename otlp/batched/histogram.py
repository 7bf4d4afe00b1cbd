"""Verification without a sort: tokens of nearly equal ratio share a bin, and so a score law.

The bins are read off the bits of p / q: its exponent and ten bits of its fraction.  All tokens
of a bin are scored alike, with the bin's mean ratio, so the selection law y = q clip(ratio of
the bin, c, C) is known exactly and the output follows p exactly.  Only acceptance is lost, at
most the distance between p and its mean over each bin: `LOSS`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, prepare, uniforms
from otlp.batched.verify import select

__all__ = ["LOSS", "Bins", "bin_coupling", "verify_histogram"]

FRACTION_BITS = 10
OCTAVES_BELOW = 14
SHIFT = 23 - FRACTION_BITS
LOWEST = (127 - OCTAVES_BELOW) << FRACTION_BITS

LOSS = 2.0 ** -(FRACTION_BITS + 2) + 2.0 ** -(OCTAVES_BELOW + 2)
"""Most acceptance that the bins can cost, 2.6e-4: see the notes of `verify_histogram`."""


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
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts a row, losslessly, within `LOSS` of the optimal acceptance.

    Parameters, results and errors are those of `otlp.batched.verify`.

    Notes
    -----
    No sort: two scattered sums into about 16,000 bins and some ten passes over (B, V).

    The loss is certified: replacing p by its mean pbar over the bins raises the optimum, since
    it leaves p of every union of bins, and straightens p in between; and the plan for pbar
    accepts sum min(p, y) >= sum min(pbar, y) - sum (pbar - p)^+.  In a bin of ratios within
    [a, b], sum (pbar - p)^+ <= q(bin) (b - a) / 4, where b - a <= 2^-10 a.  The lowest bin
    holds all ratios below 2^-14.
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator)
    coupling, index = bin_coupling(rows)
    law = coupling.ratio.gather(1, index)
    selected = select(rows, coupling, rows.at_drafts(law), numbers)
    law.mul_(rows.draft).div_(rows.draft_sum)
    return accept_or_replace(rows, law, selected, numbers[:, -2], numbers[:, -1])


def bin_coupling(rows: Rows) -> Bins:
    """Sort the tokens into bins by the bits of their ratio, and couple the bins."""
    ratio = rows.ratio()
    most = rows.tokens.shape[1]
    count = (OCTAVES_BELOW + most.bit_length()) << FRACTION_BITS
    bits = ratio.float().view(torch.int32) >> SHIFT
    index = bits.sub_(LOWEST).clamp_(0, count - 1).long()

    draft = rows.draft.double() / rows.draft_sum
    empty = draft.new_zeros(draft.shape[0], count)
    mass = empty.scatter_add(1, index, draft)
    held = empty.scatter_add(1, index, draft.mul_(ratio))
    # the mean lies in the bin; clamping it there also gives empty bins a ratio in order
    edges = torch.arange(LOWEST, LOWEST + count + 1, device=draft.device, dtype=torch.int32)
    edges = (edges << SHIFT).view(torch.float32).double()
    mean = torch.clamp(held / mass.clamp(min=1e-300), edges[:-1], edges[1:])
    mean[:, 0] = held[:, 0] / mass[:, 0].clamp(min=1e-300)
    return Bins(couple(mean, mass, rows.n.clamp(min=1.0)), index)
