"""Rows of target and draft distributions on the device, with their drafted tokens."""

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
"""Token id that pads rows with fewer drafts than the longest row.

Examples
--------
>>> from otlp import batched
>>> batched.PADDING
-1
"""

CHUNK = 2**22
"""Number of entries (rows times tokens) per chunk: 32 MiB per float64 array."""

CACHED = 2**18
"""Number of entries per chunk on a CPU; chunks that fit its caches are several times as fast."""


class Rows(NamedTuple):
    """B rows, as passed by the caller or converted for arithmetic.

    The conversion changes half precision to float32 without rounding, and keeps float32 and
    float64.  Rows are divided by their sums, in float64, only where they are used.

    Attributes
    ----------
    target, draft : Tensor, shape (B, V)
        p and q, not normalised.
    tokens : Tensor, shape (B, N), int64
        Drafted tokens, with `PADDING`.
    drafted : Tensor, shape (B, N), bool
        Mask of the tokens that are not padding.
    n : Tensor, shape (B, 1), int64
        Number of drafts of each row.
    """

    target: Tensor
    draft: Tensor
    tokens: Tensor
    drafted: Tensor
    n: Tensor

    def normalised(self) -> tuple[Tensor, Tensor]:
        """Return p and q in float64 with rows of sum one, shape (B, V)."""
        return self.target / row_sums(self.target), self.draft / row_sums(self.draft)

    def at_drafts(self, values: Tensor) -> Tensor:
        """Return `values` (B, V) at the drafted tokens, shape (B, N); arbitrary at padding."""
        return values.gather(1, self.tokens.clamp(min=0))


def prepare(target: Tensor, draft: Tensor, draft_tokens: Tensor, validate: bool) -> Rows:
    """Check the arguments of a rule and return them as `Rows`.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        Probabilities in float16, bfloat16, float32 or float64.
    draft_tokens : Tensor of int, shape (B, N)
        Drafted tokens.
    validate : bool
        Whether to check values as well as shapes, types and devices, which waits for the device.
        Skipped under `torch.compile` and CUDA graph capture.

    Returns
    -------
    Rows
        Rows as passed, detached from autograd; `by_rows` converts them for arithmetic.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        If an argument is invalid; the message names the row.
    """
    check_floats(target, "target", 2)
    check_floats(draft, "draft", 2)
    check_tokens(draft_tokens, "draft_tokens", "B, N")
    if target.shape != draft.shape or draft_tokens.shape[0] != target.shape[0]:
        raise InvalidInputError(
            "target and draft must have shape (B, V) and draft_tokens (B, N), got "
            f"{tuple(target.shape)}, {tuple(draft.shape)} and {tuple(draft_tokens.shape)}"
        )
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens)
    target, draft, tokens = target.detach(), draft.detach(), draft_tokens.long()
    drafted = tokens != PADDING
    if reads_values(validate, target):
        check_distribution(target, row_sums(target), "target")
        check_drafts(draft, tokens)
    return Rows(target, draft, tokens, drafted, drafted.sum(1, keepdim=True))


def check_drafts(draft: Tensor, tokens: Tensor) -> None:
    """Check the values of q (B, V), and that drafted tokens (B, N) have positive probability."""
    check_distribution(draft, row_sums(draft), "draft")
    check_drafted(tokens, tokens != PADDING, draft, ("row",), f"padding is {PADDING}")


def chunks(rows: Tensor, width: int) -> list[slice]:
    """Cut rows into one or more chunks of one row or at most `CHUNK` (CPU: `CACHED`) entries."""
    cached = rows.device.type == "cpu" and not torch.compiler.is_compiling()
    size = max(1, (CACHED if cached else CHUNK) // width)
    return [slice(start, start + size) for start in range(0, max(len(rows), 1), size)]


def row_sums(values: Tensor) -> Tensor:
    """Return the float64 sums (..., 1) of rows (..., V), without a float64 copy of all rows."""
    rows = values.reshape(-1, values.shape[-1])
    cuts = chunks(rows, rows.shape[1])
    parts = [rows[some].sum(1, keepdim=True, dtype=torch.float64) for some in cuts]
    return torch.cat(parts).view(*values.shape[:-1], 1)


def in_chunks(
    function: Callable[..., tuple[Tensor, ...]], width: int, *parts: Tensor
) -> tuple[Tensor, ...]:
    """Apply a function to chunks of rows, to bound its memory.

    Parameters
    ----------
    function : callable
        Accepts the same rows of all parts; returns tensors with one row for each input row.
    width : int
        Number of entries per row.
    *parts : Tensor, shape (B, ...)

    Returns
    -------
    tuple of Tensor
        Results of the function for all rows.
    """
    first, *others = chunks(parts[0], width)
    found = function(*(part[first] for part in parts))
    if not others:
        return found
    # Allocate the results once; small results of each chunk would fragment the memory.
    whole = tuple(piece.new_empty((len(parts[0]), *piece.shape[1:])) for piece in found)
    for kept, piece in zip(whole, found, strict=True):
        kept[first] = piece
    for some in others:
        for kept, piece in zip(whole, function(*(part[some] for part in parts)), strict=True):
            kept[some] = piece
    return whole


def by_rows(
    function: Callable[..., tuple[Tensor, ...]], rows: Rows, *others: Tensor, extra: int = 0
) -> tuple[Tensor, ...]:
    """Apply a function to chunks of `Rows`, converted for arithmetic; see `in_chunks`.

    Parameters
    ----------
    function : callable
        Accepts `Rows` and the same rows of the other tensors.
    rows : Rows
        B rows from `prepare`.
    *others : Tensor, shape (B, ...)
    extra : int
        Number of entries per row in addition to V.

    Returns
    -------
    tuple of Tensor
        Results of the function for all rows.
    """
    fields = len(rows)

    def ready(*parts: Tensor) -> tuple[Tensor, ...]:
        target, draft, *rest = parts[:fields]
        kind = torch.promote_types(torch.promote_types(target.dtype, draft.dtype), torch.float32)
        wide = target.to(kind).contiguous(), draft.to(kind).contiguous()
        return function(Rows(*wide, *rest), *parts[fields:])

    return in_chunks(ready, rows.target.shape[1] + extra, *rows, *others)
