"""The `martingale` plan of i.i.d. drafts: one sort, four prefix sums, binary searches."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple, scores
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, by_rows, prepare
from otlp.batched.sampling import uniforms

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}

RADIX = 2**15
"""Integers from which on PyTorch sorts a row by radix on a CPU."""


def martingale(
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
        logits see `otlp.batched.softmax`.  q must be the distribution that the drafts came from,
        as stored: sample them with `otlp.batched.sample`, and round nothing afterwards.
    draft_tokens : Tensor of int, shape (B, N)
        Drafted tokens; -1, at any place, is padding, so a row has n <= N drafts (with n = 0 its
        token is drawn from p).  The output of a row of n drafts follows p exactly if n was
        settled before they were drawn; drafts that are padded for what they are, repeated ones
        say, are not i.i.d. any more.
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
        On bad input, naming the argument and the row.

    Notes
    -----
    One sort of p / q and some 50 passes over (B, V); float64 from the sort on.  The ratios are
    rounded to the precision of the rows *before* the selection distribution y = q clip(ratio, c,
    C) is fixed, so rounding costs acceptance (below 1e-7 in float32) and no losslessness.  Rows
    are worked on in chunks of 2^22 entries, or of one row if that has more: it takes about 14
    float64 arrays of a chunk, 0.5 GiB, beside the input, whatever B is.

    The plan is that of `otlp.solvers.Martingale`, but that tokens whose ratios are equal in the
    precision of the rows are ordered by token.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = batched.sample(draft, 2, generator)
    >>> tokens, accepted = batched.martingale(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    tokens, accepted = by_rows(_verify, rows, numbers)
    return tokens, accepted


def _verify(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    coupling, place, selection = martingale_plan(rows)
    score = scores(coupling, coupling.cell(rows.at_drafts(place)), numbers[:, :-2])
    best = score.masked_fill(~rows.drafted, -1.0).argmax(1, keepdim=True)
    selected = rows.tokens.clamp(min=0).gather(1, best)
    return accept_or_replace(rows, selection, selected, numbers[:, -2], numbers[:, -1])


def martingale_plan(rows: Rows) -> tuple[Coupling, Tensor, Tensor]:
    """The optimal plan of some rows: the draft of the largest score is selected.

    Returns
    -------
    coupling : Coupling
    place : Tensor, shape (B, V), int64
        Where each token stands in the order of the ratios.
    selection : Tensor, shape (B, V), float64
        y, the distribution of the selected token; 0 in rows without drafts.
    """
    ratio = rows.ratio()
    ordered, order = sort_rows(ratio)
    mass = rows.draft.gather(1, order)
    coupling, (selection, draft) = couple(ordered, mass, rows.draft_sum, rows.n.clamp(min=1.0))
    selection.copy_(ratio)
    torch.maximum(selection, coupling.floor, out=selection)
    torch.minimum(selection, coupling.ceiling, out=selection)
    selection.mul_(draft.copy_(rows.draft)).div_(rows.selection_sum())
    return coupling, ranks(order), selection


def sort_rows(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Sort nonnegative rows (B, V), stably; return them and the order (B, V)."""
    # nonnegative floats are ordered as their bits, which a CPU compares faster
    bits = ratio.view(BITS[ratio.dtype])
    by_rows = bits.device.type == "cpu" and bits.shape[1] >= RADIX
    if not by_rows or torch.compiler.is_compiling():
        ordered, order = torch.sort(bits, dim=1, stable=True)
        return ordered.view(ratio.dtype), order
    # PyTorch has a radix sort, six times as fast, for one wide row of integers but not for several
    ordered, order = torch.empty_like(bits), torch.empty_like(bits, dtype=torch.long)
    for row, values, index in zip(bits, ordered, order, strict=True):
        torch.sort(row, stable=True, out=(values, index))
    return ordered.view(ratio.dtype), order


def ranks(order: Tensor) -> Tensor:
    """Invert permutations (B, V)."""
    places = torch.arange(order.shape[1], device=order.device).expand(order.shape)
    return torch.empty_like(order).scatter_(1, order, places)
