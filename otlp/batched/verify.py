"""Exact and optimal verification of i.i.d. drafts: one sort, four prefix sums, binary searches."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple, scores
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, prepare, uniforms

__all__ = ["ranks", "select", "sort_rows", "sorted_coupling", "verify"]

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
    One sort of p / q and some 50 passes over (B, V); float64 from the sort on.  The ratios are
    rounded to the precision of the rows *before* the selection law y = q clip(ratio, c, C) is
    fixed, so rounding costs acceptance (below 1e-7 in float32) and no losslessness.

    The plan is that of `otlp.solvers.Martingale`, but that tokens whose ratios are equal in the
    precision of the rows are ordered by token.

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
    coupling, order = sorted_coupling(rows, ratio)
    selected = select(rows, coupling, rows.at_drafts(ranks(order)), numbers)
    # only the levels are needed from here on: the prefix sums make room
    law = coupling.up.copy_(ratio)
    torch.minimum(torch.maximum(law, coupling.floor, out=law), coupling.ceiling, out=law)
    law.mul_(coupling.down.copy_(rows.draft)).div_(rows.draft_sum)
    return accept_or_replace(rows, law, selected, numbers[:, -2], numbers[:, -1])


def sorted_coupling(rows: Rows, ratio: Tensor) -> tuple[Coupling, Tensor]:
    """Couple the tokens, sorted by `ratio` (B, V); also return the order (B, V)."""
    ordered, order = sort_rows(ratio)
    mass = rows.draft.gather(1, order)
    return couple(ordered, mass, rows.draft_sum, rows.n.clamp(min=1.0)), order


def sort_rows(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Sort nonnegative rows (B, V), stably; return them and the order (B, V)."""
    # nonnegative floats are ordered as their bits, which a CPU compares faster
    bits = ratio.view(INTEGERS[ratio.dtype])
    if bits.device.type != "cpu" or torch.compiler.is_compiling():
        ordered, order = torch.sort(bits, dim=1, stable=True)
        return ordered.view(ratio.dtype), order
    # for one wide row of integers, and no more, PyTorch has a radix sort, six times as fast
    ordered, order = torch.empty_like(bits), torch.empty_like(bits, dtype=torch.long)
    for row, values, index in zip(bits, ordered, order, strict=True):
        torch.sort(row, stable=True, out=(values, index))
    return ordered.view(ratio.dtype), order


def ranks(order: Tensor) -> Tensor:
    """Invert permutations (B, V)."""
    places = torch.arange(order.shape[1], device=order.device).expand(order.shape)
    return torch.empty_like(order).scatter_(1, order, places)


def select(rows: Rows, coupling: Coupling, block: Tensor, numbers: Tensor) -> Tensor:
    """Select the drafted token of the largest score.

    Parameters
    ----------
    rows : Rows
    coupling : Coupling
    block : Tensor, shape (B, N), int64
        Block of each drafted token; any at padding.
    numbers : Tensor, shape (B, 3 N + 2)

    Returns
    -------
    Tensor, shape (B, 1), int64
    """
    score = scores(coupling, coupling.cell(block), numbers[:, :-2])
    best = score.masked_fill(~rows.drafted, -1.0).argmax(1, keepdim=True)
    return rows.tokens.clamp(min=0).gather(1, best)
