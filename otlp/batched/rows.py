"""Rows: target and draft distributions as they lie on the device, checked and made comparable."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.distribution import SUM_TOLERANCE
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)

__all__ = ["PADDING", "Rows", "prepare", "softmax", "uniforms"]

PADDING = -1
"""The token id that stands where a row has fewer drafts than the widest."""


class Rows(NamedTuple):
    """B rows, ready for arithmetic.

    Half precision becomes float32 without rounding; float32 and float64 stay as they are.  Rows
    are divided by their sums, in float64, only where they are used.

    Attributes
    ----------
    target, draft : Tensor, shape (B, V)
        p and q, not yet normalised.
    target_sum, draft_sum : Tensor, shape (B, 1), float64
        Their sums.
    tokens : Tensor, shape (B, N), int64
        Drafted tokens, with `PADDING`.
    drafted : Tensor, shape (B, N), bool
        Where `tokens` is not padding.
    n : Tensor, shape (B, 1), float64
        Number of drafts of each row.
    """

    target: Tensor
    draft: Tensor
    target_sum: Tensor
    draft_sum: Tensor
    tokens: Tensor
    drafted: Tensor
    n: Tensor

    def ratio(self) -> Tensor:
        """Ratios p / q in the precision of the rows, at most N; shape (B, V).

        No selection law exceeds n q, so ratios above N need not be told apart.  Where q is 0 the
        ratio is 0 or N, and of no meaning.
        """
        scale = (self.draft_sum / self.target_sum).to(self.draft.dtype)
        ratio = self.draft.clamp(min=torch.finfo(self.draft.dtype).tiny)
        torch.div(self.target, ratio, out=ratio)
        return ratio.mul_(scale).clamp_(max=float(self.tokens.shape[1]))

    def normalised(self) -> tuple[Tensor, Tensor]:
        """Both p and q in float64, each row of sum one; shape (B, V) each."""
        return self.target.double() / self.target_sum, self.draft.double() / self.draft_sum

    def at_drafts(self, values: Tensor) -> Tensor:
        """Read `values` (B, V) at the drafted tokens, shape (B, N); anything at padding."""
        return values.gather(1, self.tokens.clamp(min=0))


def softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Turn logits into probabilities, in float32 (float64 for float64 logits).

    Parameters
    ----------
    logits : Tensor, shape (..., V)
        Logits in any floating precision; minus infinity masks a token.
    temperature : float
        Divides the logits; greater than 0.

    Returns
    -------
    Tensor, shape (..., V)
        The drafts must be sampled from these very numbers.

    Raises
    ------
    InvalidInputError
        If the temperature is not greater than 0.
    """
    if not temperature > 0.0:
        raise InvalidInputError(
            f"temperature is {temperature}: it must be greater than 0 "
            "(for greedy decoding use a point mass on the arg max)"
        )
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.softmax(wide / temperature, dim=-1)


def uniforms(draft_tokens: Tensor, source: torch.Generator | Tensor | None) -> Tensor:
    """Draw the random numbers that one verification of these drafts needs.

    Parameters
    ----------
    draft_tokens : Tensor, shape (B, N)
    source : torch.Generator, Tensor or None
        A generator on the device of `draft_tokens`; None is PyTorch's own; numbers drawn
        earlier are checked and returned.

    Returns
    -------
    Tensor, shape (B, 3 N + 2), float64, in [0, 1)
        May be passed in place of a generator: into compiled code, or as the buffer that a CUDA
        graph reads and that is refilled before each replay.

    Raises
    ------
    InvalidInputError
        If the source is on another device, or the numbers have another shape or type.
    """
    check_devices(draft_tokens=draft_tokens, generator=source)
    batch, most = draft_tokens.shape
    shape = (batch, 3 * most + 2)
    if not isinstance(source, Tensor):
        return torch.rand(shape, dtype=torch.float64, device=draft_tokens.device, generator=source)
    if tuple(source.shape) != shape or source.dtype != torch.float64:
        raise InvalidInputError(
            f"the random numbers have shape {tuple(source.shape)} and type {source.dtype}: "
            f"otlp.batched.uniforms gives float64 of shape {shape}"
        )
    return source


def prepare(target: Tensor, draft: Tensor, draft_tokens: Tensor, validate: bool) -> Rows:
    """Check the input and widen it.

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

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        With the row in the message.
    """
    _check_form(target, draft, draft_tokens)
    wide = torch.promote_types(torch.promote_types(target.dtype, draft.dtype), torch.float32)
    tokens = draft_tokens.long()
    drafted = tokens != PADDING
    rows = Rows(
        target.to(wide),
        draft.to(wide),
        target.sum(1, keepdim=True, dtype=torch.float64),
        draft.sum(1, keepdim=True, dtype=torch.float64),
        tokens,
        drafted,
        drafted.sum(1, keepdim=True, dtype=torch.float64),
    )
    if validate and not recording(target.device):
        check_distribution(target, rows.target_sum, "target")
        check_distribution(draft, rows.draft_sum, "draft")
        _check_tokens(rows)
    return rows


def _check_form(target: Tensor, draft: Tensor, draft_tokens: Tensor) -> None:
    for name, values in (("target", target), ("draft", draft)):
        if values.ndim != 2 or values.shape[1] == 0 or not values.is_floating_point():
            raise InvalidInputError(
                f"{name} has shape {tuple(values.shape)} and type {values.dtype}: it must hold "
                "floating-point probabilities of shape (B, V)"
            )
    if target.shape != draft.shape:
        raise InvalidInputError(
            f"target has shape {tuple(target.shape)} and draft {tuple(draft.shape)}: "
            "both must have one row for each row of drafts, over the same vocabulary"
        )
    integers = not draft_tokens.is_floating_point() and draft_tokens.dtype != torch.bool
    fits = draft_tokens.ndim == 2 and draft_tokens.shape[0] == target.shape[0]
    if not (integers and fits and draft_tokens.shape[1] > 0):
        raise InvalidInputError(
            f"draft_tokens has shape {tuple(draft_tokens.shape)} and type {draft_tokens.dtype}: "
            f"it must hold integer token ids of shape ({target.shape[0]}, N)"
        )
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens)


def check_devices(**parts: Tensor | torch.Generator | None) -> None:
    """Raise `InvalidInputError` unless all parts lie on one device."""
    devices = {name: part.device for name, part in parts.items() if part is not None}
    if len({(d.type, d.index or 0) for d in devices.values()}) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InvalidInputError(f"{listed}: move all of them to one device")


def check_distribution(values: Tensor, sums: Tensor, name: str) -> None:
    """Raise `InvalidDistributionError`, naming the row, unless every row is a distribution.

    Parameters
    ----------
    values : Tensor, shape (..., V)
    sums : Tensor, shape (..., 1), float64
    name : str
        What the rows are called in the message.
    """
    tolerance = SUM_TOLERANCE[values.element_size()]
    low = values.amin(-1)
    good = (low >= 0) & ((sums[..., 0] - 1.0).abs() <= tolerance)
    if not bool(good.all()):
        row = tuple(good.logical_not().nonzero()[0].tolist())
        where = ", ".join(str(place) for place in row)
        raise InvalidDistributionError(
            f"{name} row {where} sums to {float(sums[row]):.9g} and its least entry is "
            f"{float(low[row]):.3g}: entries must be finite and at least 0, and the sum within "
            f"{tolerance:g} of 1 for {values.dtype} (for logits use otlp.batched.softmax)"
        )


def _check_tokens(rows: Rows) -> None:
    vocab_size = rows.draft.shape[1]
    outside = rows.drafted & ((rows.tokens < 0) | (rows.tokens >= vocab_size))
    if bool(outside.any()):
        row, place = (int(i) for i in outside.nonzero()[0])
        raise TokenOutOfRangeError(
            f"draft_tokens row {row}: token id {int(rows.tokens[row, place])} lies outside the "
            f"vocabulary [0, {vocab_size}); padding is {PADDING}"
        )
    never = rows.drafted & (rows.at_drafts(rows.draft) == 0)
    if bool(never.any()):
        row, place = (int(i) for i in never.nonzero()[0])
        raise ZeroProbabilityError(
            f"draft_tokens row {row}: token {int(rows.tokens[row, place])} has draft probability "
            "0: pass the distribution that the drafts were sampled from"
        )


def recording(device: torch.device) -> bool:
    """Whether the device is being traced or captured, so that no value may be read."""
    if torch.compiler.is_compiling():
        return True
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
