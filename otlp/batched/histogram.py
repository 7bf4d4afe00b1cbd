"""Verification without a sort: tokens of nearly equal ratio share a bin, and so a score law.

The bins are read off the bits of p / q: its exponent and ten bits of its fraction.  All tokens
of a bin are scored alike, with the bin's mean ratio, so the selection distribution
y = q clip(ratio of the bin, c, C) is known exactly and the output follows p exactly.  Only
acceptance is lost, at most `certified_loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from otlp.batched.coupling import couple
from otlp.batched.martingale import BatchedPlan, martingale_plan, verify_by
from otlp.batched.numerics import TINY
from otlp.batched.rows import Rows, prepare
from otlp.batched.sampling import uniforms
from otlp.errors import InvalidInputError

FRACTION_BITS = 10
"""Bits of the fraction that tell bins apart: 2^10 bins an octave, some 17,000 in all."""

OCTAVES_BELOW = 14
"""Ratios below 2^-14 share one bin."""


def certified_loss(fraction_bits: int = FRACTION_BITS) -> float:
    """Most acceptance that the bins can cost: 2.6e-4 for ten bits.

    Raises
    ------
    InvalidInputError
        If `fraction_bits` is not an int within 0 to 23.

    Notes
    -----
    Replacing p by its mean pbar over the bins raises the optimum, since it leaves p of every
    union of bins, and straightens it in between.  The plan for pbar accepts
    sum min(p, y) >= sum min(pbar, y) - sum (pbar - p)^+.  In a bin of ratios within [a, b],
    sum (pbar - p)^+ <= q(bin) (b - a) / 4, where b - a <= a / 2^bits, or 2^-14 in the lowest.

    Examples
    --------
    >>> from otlp import batched
    >>> round(batched.certified_loss(10), 6)
    0.000259
    """
    _check_bits(fraction_bits)
    return 2.0 ** -(fraction_bits + 2) + 2.0 ** -(OCTAVES_BELOW + 2)


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
        of the optimum, and the output follows p exactly for every choice.

    Raises
    ------
    InvalidInputError
        Also if `fraction_bits` is not an int within 0 to 23.

    Notes
    -----
    No sort: two scattered sums into the bins and some ten passes over (B, V).  Rows of no more
    tokens than there are bins (some 17,000 by default) are verified as by `otlp.batched.verify`,
    which costs less there and nothing in acceptance.  So the bins take no more memory than the
    rows do, and the limit is that of `otlp.batched.verify`.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.tensor([[0, 1]])
    >>> tokens, accepted = batched.verify_histogram(target, draft, drafts)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    plan = histogram_plan(rows, fraction_bits)
    return verify_by(plan, rows, uniforms(draft_tokens, generator, validate=validate))


def histogram_plan(rows: Rows, fraction_bits: int) -> Callable[[Rows], BatchedPlan]:
    """Choose the plan for rows of this width: bins, or the optimal one where it is no larger.

    Raises
    ------
    InvalidInputError
        If `fraction_bits` is not an int within 0 to 23.
    """
    _check_bits(fraction_bits)
    if rows.target.shape[1] <= bin_count(rows, fraction_bits):
        return martingale_plan
    return partial(binned_plan, fraction_bits=fraction_bits)


def _check_bits(fraction_bits: object) -> None:
    whole = isinstance(fraction_bits, int) and not isinstance(fraction_bits, bool)
    if not (whole and fraction_bits in range(24)):
        raise InvalidInputError(
            f"fraction_bits is {fraction_bits!r}: it must be an int, and a float32 has 0 to 23 "
            "of them"
        )


def bin_count(rows: Rows, fraction_bits: int) -> int:
    """Bins of the ratios up to N."""
    return (OCTAVES_BELOW + rows.tokens.shape[1].bit_length()) << fraction_bits


def binned_plan(rows: Rows, fraction_bits: int) -> BatchedPlan:
    """Sort the tokens into bins by the bits of their ratio, and couple the bins."""
    shift = 23 - fraction_bits
    lowest = (127 - OCTAVES_BELOW) << fraction_bits
    count = bin_count(rows, fraction_bits)
    ratio = rows.ratio()
    bits = ratio.float().view(torch.int32) >> shift
    group = bits.sub_(lowest).clamp_(0, count - 1).long()

    draft = rows.draft.double() / rows.draft_sum
    empty = draft.new_zeros(draft.shape[0], count)
    mass = empty.scatter_add(1, group, draft)
    held = empty.scatter_add(1, group, draft.mul_(ratio))
    # the mean lies in the bin; clamping it there also gives empty bins a ratio in order
    edges = torch.arange(lowest, lowest + count + 1, device=draft.device, dtype=torch.int32)
    edges = (edges << shift).view(torch.float32).double()
    mean = held / mass.clamp(min=TINY)
    mean[:, 1:] = torch.clamp(mean[:, 1:], edges[1:-1], edges[2:])
    coupling, _ = couple(mean, mass, torch.ones_like(rows.n), rows.n.clamp(min=1.0))
    selection = coupling.ratio.gather(1, group).mul_(rows.draft).div_(rows.selection_sum())
    return BatchedPlan(coupling, group, selection)
