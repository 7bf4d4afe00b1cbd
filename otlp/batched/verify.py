"""Exact and optimal verification of i.i.d. drafts: one sort, four prefix sums, binary searches."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple, scores
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, prepare, uniforms

__all__ = ["select", "sorted_coupling", "verify"]

INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def verify(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts a row, losslessly and with the optimal acceptance.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        Probabilities p and q in float16, bfloat16, float32 or float64, on one device; for
        logits see `otlp.batched.softmax`.  q must be the law that the drafts came from, as
        stored: rounding it after drafting changes the output law by as much.
    draft_tokens : Tensor of int, shape (B, N)
        Drafted tokens; -1 is padding, so a row has n <= N drafts (with n = 0 its token is
        drawn from p).
    generator : torch.Generator, Tensor or None
        Source of randomness on the same device; None is PyTorch's own.  In compiled code and
        CUDA graphs pass the numbers themselves, see `otlp.batched.uniforms`.
    validate : bool
        Look at the values of the input, which waits for the device.  Left out under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
        The verified tokens, each distributed exactly as its row of p.
    accepted : Tensor, shape (B,), bool
        Whether the verified token is a drafted one.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        On bad input, naming the row.

    Notes
    -----
    One sort of p / q and about 40 passes over (B, V); float64 from the sort on.  The ratios are
    rounded to the precision of the rows *before* the selection law y = q clip(ratio, c, C) is
    fixed, so rounding costs acceptance (below 1e-7 in float32) and no losslessness.

    The selection law and the acceptance are those of `otlp.solvers.Martingale`; the coupling is
    another one (see `otlp.batched.coupling`), so the slices differ.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.multinomial(draft, 2, replacement=True, generator=generator)
    >>> tokens, accepted = batched.verify(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator)
    ratio = rows.ratio()
    coupling, _ = sorted_coupling(rows, ratio)
    law = ratio.to(torch.float64, copy=True).clamp_(coupling.floor, coupling.ceiling)
    selected = select(rows, coupling, rows.at_drafts(law), numbers)
    law.mul_(rows.draft).div_(rows.draft_sum)
    return accept_or_replace(rows, law, selected, numbers[:, -2], numbers[:, -1])


def sorted_coupling(rows: Rows, ratio: Tensor) -> tuple[Coupling, Tensor]:
    """Couple the tokens, sorted by `ratio` (B, V); also return the order (B, V)."""
    # nonnegative floats are ordered as their bits, which a CPU compares faster
    bits, order = torch.sort(ratio.view(INTEGERS[ratio.dtype]), dim=1)
    ordered = bits.view(ratio.dtype)
    mass = rows.draft.gather(1, order).double().div_(rows.draft_sum)
    return couple(ordered, mass, rows.n.clamp(min=1.0)), order


def select(rows: Rows, coupling: Coupling, ratio: Tensor, numbers: Tensor) -> Tensor:
    """Select the drafted token of the largest score.

    Parameters
    ----------
    rows : Rows
    coupling : Coupling
    ratio : Tensor, shape (B, N), float64
        Clipped ratio of each drafted token; anything that the coupling holds at padding.
    numbers : Tensor, shape (B, 2 N + 2)

    Returns
    -------
    Tensor, shape (B, 1), int64
    """
    most = rows.tokens.shape[1]
    score = scores(coupling, ratio, numbers[:, :most], numbers[:, most : 2 * most])
    best = score.masked_fill(~rows.drafted, -1.0).argmax(1, keepdim=True)
    return rows.tokens.clamp(min=0).gather(1, best)
