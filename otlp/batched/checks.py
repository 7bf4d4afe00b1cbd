"""Checks of arguments: types and shapes always, values only if they may be read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otlp.distribution import SUM_TOLERANCE
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    OTLPError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_floats(values: Any, name: str, ndim: int | None = None, rows: str = "") -> None:
    """Raise `InvalidInputError` unless `values` is a dense floating-point tensor (..., V)."""
    _check_type(values, name, FLOATS)
    if values.ndim == 0 or values.shape[-1] == 0 or ndim not in (None, values.ndim):
        axes = rows or ("..., ", "", "B, ", "B, N, ", "B, K, L, ")[ndim or 0]
        raise InvalidInputError(
            f"{name} must have shape ({axes}V) with V at least 1, got {tuple(values.shape)}"
        )


def check_tokens(tokens: Any, name: str, axes: str) -> None:
    """Raise `InvalidInputError` unless `tokens` is a dense integer tensor with the axes `axes`.

    Only the first axis (the rows) may be empty.
    """
    _check_type(tokens, name, INTEGERS)
    if tokens.ndim != axes.count(",") + 1 or 0 in tokens.shape[1:]:
        raise InvalidInputError(
            f"{name} must have shape ({axes}), got {tuple(tokens.shape)}"
            + ("; all sizes except B must be at least 1" if "," in axes else "")
        )


def check_numbers(
    numbers: object, shape: tuple[int, ...], device: torch.device, validate: bool
) -> None:
    """Raise `InvalidInputError` unless `numbers` is a valid source of random numbers.

    Parameters
    ----------
    numbers : torch.Generator, Tensor or None
        Generator, or numbers drawn earlier.
    shape : tuple of int
        Required shape of numbers drawn earlier.
    device : torch.device
        Device on which the numbers are used.
    validate : bool
        Whether to check that numbers drawn earlier lie in [0, 1).
    """
    if not isinstance(numbers, torch.Generator | Tensor | None):
        raise InvalidInputError(
            "generator must be a torch.Generator, such as torch.Generator().manual_seed(0), a "
            f"tensor of uniform random numbers or None, got {type(numbers).__name__}"
        )
    if numbers is not None and not _same_device(numbers.device, device):
        raise InvalidInputError(
            f"generator must be on the device of the rows, {device}, got {numbers.device}"
        )
    if not isinstance(numbers, Tensor):
        return
    _check_type(numbers, "generator", (torch.float64,))
    if tuple(numbers.shape) != shape:
        raise InvalidInputError(
            f"the random numbers in generator must have shape {shape}, got {tuple(numbers.shape)}"
        )
    if reads_values(validate, numbers) and not bool(((numbers >= 0) & (numbers < 1)).all()):
        raise InvalidInputError("the random numbers in generator must lie in [0, 1), without NaN")


def check_devices(**parts: Tensor) -> None:
    """Raise `InvalidInputError` unless all tensors are on one device."""
    devices = [part.device for part in parts.values()]
    if not all(_same_device(device, devices[0]) for device in devices):
        listed = ", ".join(f"{name} on {part.device}" for name, part in parts.items())
        raise InvalidInputError(f"all tensors must be on one device, got {listed}")


def check_distribution(
    values: Tensor, sums: Tensor, name: str, checked: Tensor | None = None
) -> None:
    """Raise `InvalidDistributionError`, naming the row, unless every row is a distribution.

    Parameters
    ----------
    values : Tensor, shape (..., V)
    sums : Tensor, shape (..., 1), float64
        Sums of the rows.
    name : str
        Name of the rows in the message.
    checked : Tensor of bool, shape (...), optional
        Rows to check, default all.
    """
    tolerance = SUM_TOLERANCE[values.element_size()]
    low = values.amin(-1)
    good = (low >= 0) & ((sums[..., 0] - 1.0).abs() <= tolerance)
    if checked is not None:
        good |= ~checked
    if not bool(good.all()):
        row = _first(~good)
        where = ", ".join(map(str, row))
        raise InvalidDistributionError(
            f"{name} row {where} must have finite entries of at least 0 and a sum within "
            f"{tolerance:g} of 1 for {values.dtype}, got sum {float(sums[row]):.9g} and smallest "
            f"entry {float(low[row]):.3g} (for logits use otlp.batched.softmax)"
        )


def check_logits(logits: Tensor, temperatures: Tensor) -> None:
    """Raise `InvalidInputError`, naming the row, unless all logits and temperatures are valid.

    Parameters
    ----------
    logits : Tensor, shape (B, V)
    temperatures : Tensor, shape (B,)
        Temperature of each row; NaN if it is invalid.
    """
    highest = logits.amax(1)
    if not bool(highest.isfinite().all()):
        (row,) = _first(~highest.isfinite())
        raise InvalidInputError(
            f"the largest entry of target_logits row {row} must be finite, got "
            f"{float(highest[row])} (minus infinity masks a token; keep at least one)"
        )
    if bool(temperatures.isnan().any()):
        (row,) = _first(temperatures.isnan())
        raise InvalidInputError(
            f"temperature row {row} must be finite in float32 and greater than 0 (for greedy "
            "decoding use a point mass on the arg max)"
        )


def check_enough(probabilities: Tensor, n: int) -> None:
    """Raise `InvalidInputError`, naming the row, unless each row has n tokens of mass > 0."""
    count = (probabilities > 0).sum(-1)
    if bool((count < n).any()):
        row = _first(count < n)
        where = ", ".join(map(str, row))
        raise InvalidInputError(
            f"probabilities row {where} must have at least n = {n} tokens of positive "
            f"probability, got {int(count[row])}"
        )


def check_drafted(
    tokens: Tensor, drafted: Tensor, draft: Tensor, axes: tuple[str, ...], padding: str
) -> None:
    """Check that drafted tokens lie in the vocabulary and have positive draft probability.

    Parameters
    ----------
    tokens, drafted : Tensor, shape (B, ...)
        Token ids, and a mask of the tokens to check.
    draft : Tensor, shape (B, ..., V)
        Distribution of each token; axes of `tokens` may be broadcast.
    axes : tuple of str
        Names of the axes of `tokens` in the message; the last name may be left out.
    padding : str
        Remark on padding in the message.

    Raises
    ------
    TokenOutOfRangeError, ZeroProbabilityError
        With the position in the message.
    """
    vocab_size = draft.shape[-1]
    refuse(
        drafted & ((tokens < 0) | (tokens >= vocab_size)), tokens, TokenOutOfRangeError, axes,
        f"token id {{}} lies outside the vocabulary [0, {vocab_size}); {padding}",
    )  # fmt: skip
    if draft.ndim == tokens.ndim:
        mass = draft.gather(-1, tokens.clamp(min=0))
    else:
        mass = draft.gather(-1, tokens.clamp(min=0)[..., None])[..., 0]
    refuse(
        drafted & (mass == 0), tokens, ZeroProbabilityError, axes,
        "token {} has draft probability 0; pass the distribution that the drafts were sampled from",
    )  # fmt: skip


def check_different(tokens: Tensor, padding: int) -> None:
    """Raise `ZeroProbabilityError`, naming the row, if a row of `tokens` (B, N) has duplicates."""
    ordered = tokens.sort(1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != padding)
    refuse(
        twice, ordered[:, 1:], ZeroProbabilityError, ("row",),
        "token {} occurs twice; drafts without replacement must be distinct (for i.i.d. drafts use "
        "martingale or recursive_rejection)",
    )  # fmt: skip


def refuse(
    refused: Tensor, tokens: Tensor, kind: type[OTLPError], axes: tuple[str, ...], reason: str
) -> None:
    """Raise an error of type `kind` at the first refused token, if any.

    Parameters
    ----------
    refused, tokens : Tensor, shape (B, ...)
    kind : type
    axes : tuple of str
        Names of the axes in the message; the last name may be left out.
    reason : str
        Reason in the message, with a ``{}`` for the token.
    """
    if bool(refused.any()):
        at = _first(refused)
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, at, strict=False))
        raise kind(f"draft_tokens {place}: {reason.format(int(tokens[at]))}")


def reads_values(validate: bool, values: Tensor) -> bool:
    """Return whether values may be read: never during tracing or CUDA graph capture."""
    if not isinstance(validate, bool):
        raise InvalidInputError(f"validate must be True or False, got {validate!r}")
    if not validate or torch.compiler.is_compiling():
        return False
    return not (values.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def _check_type(values: object, name: str, types: tuple[torch.dtype, ...]) -> None:
    known = ", ".join(str(kind).removeprefix("torch.") for kind in types)
    if not isinstance(values, Tensor):
        raise InvalidInputError(
            f"{name} must be a torch.Tensor of {known}, got {type(values).__name__}"
        )
    if values.dtype not in types or values.layout != torch.strided:
        raise InvalidInputError(
            f"{name} must be a dense tensor of {known}, got {values.dtype}, {values.layout}, "
            f"shape {tuple(values.shape)}"
        )


def _same_device(one: torch.device, other: torch.device) -> bool:
    return (one.type, one.index or 0) == (other.type, other.index or 0)


def _first(where: Tensor) -> tuple[int, ...]:
    return tuple(where.nonzero()[0].tolist())
