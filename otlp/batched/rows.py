"""Rows: target and draft distributions as they lie on the device, and drafts from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.checks import (
    check_devices,
    check_distribution,
    check_drafted,
    check_floats,
    check_tokens,
    reads_values,
)
from otlp.errors import InvalidInputError

PADDING = -1
"""The token id that stands where a row has fewer drafts than the widest.

Examples
--------
>>> from otlp import batched
>>> batched.PADDING
-1
"""

CHUNK = 2**22
"""Entries (rows times tokens) that are worked on at once: 32 MiB an array in float64."""

CACHED = 2**18
"""The same on a CPU, where what its caches hold is worked on several times as fast."""


class Rows(NamedTuple):
    """B rows, as they were passed or ready for arithmetic.

    Half precision becomes float32 without rounding; float32 and float64 stay as they are.  Rows
    are divided by their sums, in float64, only where they are used.

    Attributes
    ----------
    target, draft : Tensor, shape (B, V)
        p and q, not yet normalised.
    tokens : Tensor, shape (B, N), int64
        Drafted tokens, with `PADDING`.
    drafted : Tensor, shape (B, N), bool
        Where `tokens` is not padding.
    n : Tensor, shape (B, 1), int64
        Number of drafts of each row.
    """

    target: Tensor
    draft: Tensor
    tokens: Tensor
    drafted: Tensor
    n: Tensor

    def normalised(self) -> tuple[Tensor, Tensor]:
        """Both p and q in float64, each row of sum one; shape (B, V) each."""
        return self.target / row_sums(self.target), self.draft / row_sums(self.draft)

    def at_drafts(self, values: Tensor) -> Tensor:
        """Read `values` (B, V) at the drafted tokens, shape (B, N); anything at padding."""
        return values.gather(1, self.tokens.clamp(min=0))


def prepare(target: Tensor, draft: Tensor, draft_tokens: Tensor, validate: bool) -> Rows:
    """Check the input.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        Probabilities in float16, bfloat16, float32 or float64.
    draft_tokens : Tensor of int, shape (B, N)
    validate : bool
        Whether to look at values as well as at shapes, types and devices.  This waits for the
        device; it is left out while `torch.compile` traces or a CUDA graph is captured.

    Returns
    -------
    Rows
        As they were passed, outside autograd; `by_rows` makes them ready for arithmetic.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        With the row in the message.
    """
    check_floats(target, "target", 2)
    check_floats(draft, "draft", 2)
    check_tokens(draft_tokens, "draft_tokens", "B, N")
    if target.shape != draft.shape or draft_tokens.shape[0] != target.shape[0]:
        raise InvalidInputError(
            f"target has shape {tuple(target.shape)}, draft {tuple(draft.shape)} and draft_tokens "
            f"{tuple(draft_tokens.shape)}: all must have B rows, and the first two V tokens"
        )
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens)
    target, draft, tokens = target.detach(), draft.detach(), draft_tokens.long()
    drafted = tokens != PADDING
    if reads_values(validate, target):
        check_distribution(target, row_sums(target), "target")
        check_drafts(draft, tokens)
    return Rows(target, draft, tokens, drafted, drafted.sum(1, keepdim=True))


def check_drafts(draft: Tensor, tokens: Tensor) -> None:
    """Check the values of q (B, V), and that drafted tokens (B, N) can have come from them."""
    check_distribution(draft, row_sums(draft), "draft")
    check_drafted(tokens, tokens != PADDING, draft, ("row",), f"padding is {PADDING}")


def chunks(rows: Tensor, width: int) -> list[slice]:
    """Cut rows into chunks of at most so many entries, or of one row; at least one chunk."""
    cached = rows.device.type == "cpu" and not torch.compiler.is_compiling()
    size = max(1, (CACHED if cached else CHUNK) // width)
    return [slice(start, start + size) for start in range(0, max(len(rows), 1), size)]


def row_sums(values: Tensor) -> Tensor:
    """Sum rows (..., V) in float64, shape (..., 1), with no float64 copy of all of them."""
    rows = values.reshape(-1, values.shape[-1])
    cuts = chunks(rows, rows.shape[1])
    parts = [rows[some].sum(1, keepdim=True, dtype=torch.float64) for some in cuts]
    return torch.cat(parts).view(*values.shape[:-1], 1)


def in_chunks(
    function: Callable[..., tuple[Tensor, ...]], width: int, *parts: Tensor
) -> tuple[Tensor, ...]:
    """Apply a function to chunks of rows, which bounds the memory that it takes.

    Parameters
    ----------
    function : callable
        Takes the same rows of all parts; returns tensors with one row for each.
    width : int
        Entries that a row counts for.
    *parts : Tensor, shape (B, ...)

    Returns
    -------
    tuple of Tensor
        What the function returns for all rows.
    """
    first, *others = chunks(parts[0], width)
    found = function(*(part[first] for part in parts))
    if not others:
        return found
    # kept one by one, small results would lie between the large blocks of memory that follow them
    whole = tuple(piece.new_empty((len(parts[0]), *piece.shape[1:])) for piece in found)
    for kept, piece in zip(whole, found, strict=True):
        kept[first] = piece
    for some in others:
        for kept, piece in zip(whole, function(*(part[some] for part in parts)), strict=True):
            kept[some] = piece
    return whole


def by_rows(
    function: Callable[..., tuple[Tensor, ...]], rows: Rows, *others: Tensor, beside: int = 0
) -> tuple[Tensor, ...]:
    """Apply a function to some `Rows` at a time, ready for arithmetic; see `in_chunks`.

    Parameters
    ----------
    function : callable
        Takes rows, and as many of the others.
    rows : Rows
        B rows from `prepare`.
    *others : Tensor, shape (B, ...)
    beside : int
        Entries that a row counts for beside its V.

    Returns
    -------
    tuple of Tensor
    """
    fields = len(rows)

    def ready(*parts: Tensor) -> tuple[Tensor, ...]:
        target, draft, *rest = parts[:fields]
        kind = torch.promote_types(torch.promote_types(target.dtype, draft.dtype), torch.float32)
        wide = target.to(kind).contiguous(), draft.to(kind).contiguous()
        return function(Rows(*wide, *rest), *parts[fields:])

    return in_chunks(ready, rows.target.shape[1] + beside, *rows, *others)
