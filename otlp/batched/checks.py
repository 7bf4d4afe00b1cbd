"""Checks of what callers pass: the type and the form always, values if they may be read."""

from __future__ import annotations

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


def check_floats(values: object, name: str, ndim: int | None = None, rows: str = "") -> None:
    """Raise `InvalidInputError` unless `values` is a dense floating tensor over a vocabulary."""
    _check_type(values, name, FLOATS)
    assert isinstance(values, Tensor)
    if values.ndim == 0 or values.shape[-1] == 0 or ndim not in (None, values.ndim):
        axes = rows or ("..., ", "", "B, ", "B, N, ", "B, K, L, ")[ndim or 0]
        raise InvalidInputError(
            f"{name} has shape {tuple(values.shape)}: it must be ({axes}V), V at least 1"
        )


def check_tokens(tokens: object, name: str, axes: str) -> None:
    """Raise `InvalidInputError` unless `tokens` is a dense integer tensor with these axes.

    The first axis, that of the rows, may be empty; the others may not.
    """
    _check_type(tokens, name, INTEGERS)
    assert isinstance(tokens, Tensor)
    if tokens.ndim != axes.count(",") + 1 or 0 in tokens.shape[1:]:
        raise InvalidInputError(
            f"{name} has shape {tuple(tokens.shape)}: it must be ({axes})"
            + (", each but B at least 1" if "," in axes else "")
        )


def check_numbers(
    numbers: object, shape: tuple[int, ...], device: torch.device, validate: bool
) -> None:
    """Raise `InvalidInputError` unless `numbers` is a source of random numbers.

    Parameters
    ----------
    numbers : torch.Generator, Tensor or None
    shape : tuple of int
        That numbers drawn earlier must have.
    device : torch.device
        Where the numbers are used.
    validate : bool
        Whether to see that numbers drawn earlier lie in [0, 1).
    """
    if not isinstance(numbers, torch.Generator | Tensor | None):
        raise InvalidInputError(
            f"generator is a {type(numbers).__name__}: it must be a torch.Generator "
            "(torch.Generator().manual_seed(0)), a tensor of uniform random numbers, or None"
        )
    if numbers is not None and not _same_device(numbers.device, device):
        raise InvalidInputError(
            f"generator on {numbers.device}, the rows on {device}: move both to one device"
        )
    if not isinstance(numbers, Tensor):
        return
    _check_type(numbers, "generator", (torch.float64,))
    if tuple(numbers.shape) != shape:
        raise InvalidInputError(
            f"generator holds random numbers of shape {tuple(numbers.shape)}: it must be {shape}"
        )
    if reads_values(validate, numbers) and not bool(((numbers >= 0) & (numbers < 1)).all()):
        raise InvalidInputError("generator holds numbers outside [0, 1), or NaN")


def check_devices(**parts: Tensor) -> None:
    """Raise `InvalidInputError` unless all parts lie on one device."""
    devices = [part.device for part in parts.values()]
    if not all(_same_device(device, devices[0]) for device in devices):
        listed = ", ".join(f"{name} on {part.device}" for name, part in parts.items())
        raise InvalidInputError(f"{listed}: move all of them to one device")


def check_distribution(
    values: Tensor, sums: Tensor, name: str, looked: Tensor | None = None
) -> None:
    """Raise `InvalidDistributionError`, naming the row, unless every row is a distribution.

    Parameters
    ----------
    values : Tensor, shape (..., V)
    sums : Tensor, shape (..., 1), float64
    name : str
        What the rows are called in the message.
    looked : Tensor of bool, shape (...), optional
        Rows that are used; all by default.
    """
    tolerance = SUM_TOLERANCE[values.element_size()]
    low = values.amin(-1)
    good = (low >= 0) & ((sums[..., 0] - 1.0).abs() <= tolerance)
    if looked is not None:
        good |= ~looked
    if not bool(good.all()):
        row = _first(~good)
        where = ", ".join(map(str, row))
        raise InvalidDistributionError(
            f"{name} row {where} sums to {float(sums[row]):.9g} and its least entry is "
            f"{float(low[row]):.3g}: entries must be finite and at least 0, and the sum within "
            f"{tolerance:g} of 1 for {values.dtype} (for logits use otlp.batched.softmax)"
        )


def check_logits(logits: Tensor, temperatures: Tensor) -> None:
    """Raise `InvalidInputError`, naming the row, unless every row (B, V) is one of logits.

    Parameters
    ----------
    logits : Tensor, shape (B, V)
    temperatures : Tensor, shape (B,)
        NaN where they are refused.
    """
    highest = logits.amax(1)
    if not bool(highest.isfinite().all()):
        (row,) = _first(~highest.isfinite())
        raise InvalidInputError(
            f"target_logits row {row}: its largest entry is {float(highest[row])}: it must be "
            "finite (minus infinity masks a token, but not all of them)"
        )
    if bool(temperatures.isnan().any()):
        (row,) = _first(temperatures.isnan())
        raise InvalidInputError(
            f"temperature row {row} must be finite in float32 and greater than 0 (for greedy "
            "decoding use a point mass on the arg max)"
        )


def check_enough(values: Tensor, n: int, name: str) -> None:
    """Raise `InvalidInputError`, naming the row, unless n tokens of each row can be drawn."""
    count = (values > 0).sum(-1)
    if bool((count < n).any()):
        row = _first(count < n)
        where = ", ".join(map(str, row))
        raise InvalidInputError(
            f"{name} row {where} has {int(count[row])} tokens of positive probability: n = {n} "
            "different ones cannot be drawn"
        )


def check_drafted(
    tokens: Tensor, drafted: Tensor, draft: Tensor, axes: tuple[str, ...], padding: str
) -> None:
    """Check that drafted tokens can have come from their distributions.

    Parameters
    ----------
    tokens, drafted : Tensor, shape (B, ...)
        Token ids, and which of them are looked at.
    draft : Tensor, shape (B, ..., V)
        Where each came from; axes of `tokens` may be broadcast.
    axes : tuple of str
        What the axes of `tokens` are called in the message, but for the last where rows suffice.
    padding : str
        What the message says on padding.

    Raises
    ------
    TokenOutOfRangeError, ZeroProbabilityError
        With the place in the message.
    """
    vocab_size = draft.shape[-1]
    refuse(
        drafted & ((tokens < 0) | (tokens >= vocab_size)), tokens, TokenOutOfRangeError,
        "draft_tokens", axes,
        f"token id {{}} lies outside the vocabulary [0, {vocab_size}); {padding}",
    )  # fmt: skip
    if draft.ndim == tokens.ndim:
        mass = draft.gather(-1, tokens.clamp(min=0))
    else:
        mass = draft.gather(-1, tokens.clamp(min=0)[..., None])[..., 0]
    refuse(
        drafted & (mass == 0), tokens, ZeroProbabilityError, "draft_tokens", axes,
        "token {} has draft probability 0: pass the distribution that the drafts were sampled from",
    )  # fmt: skip


def check_different(tokens: Tensor, padding: int) -> None:
    """Raise `ZeroProbabilityError`, naming the row, if one of tokens (B, N) holds one twice."""
    ordered = tokens.sort(1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != padding)
    refuse(
        twice, ordered[:, 1:], ZeroProbabilityError, "draft_tokens", ("row",),
        "token {} is there twice: drafts without replacement are different (for i.i.d. drafts use "
        "martingale or recursive_rejection)",
    )  # fmt: skip


def refuse(
    refused: Tensor,
    values: Tensor,
    kind: type[OTLPError],
    name: str,
    axes: tuple[str, ...],
    reason: str,
) -> None:
    """Raise an error of this kind at the first place that is refused.

    Parameters
    ----------
    refused, values : Tensor, shape (B, ...)
    kind : type
    name : str
        What holds the values.
    axes : tuple of str
        What its axes are called, but for the last where rows suffice.
    reason : str
        What is wrong, with a ``{}`` for the value.
    """
    if bool(refused.any()):
        at = _first(refused)
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, at, strict=False))
        raise kind(f"{name} {place}: {reason.format(int(values[at]))}")


def reads_values(validate: bool, values: Tensor) -> bool:
    """Whether to look at values: never while the device is being traced or captured."""
    if not isinstance(validate, bool):
        raise InvalidInputError(f"validate is {validate!r}: it must be True or False")
    if not validate or torch.compiler.is_compiling():
        return False
    return not (values.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def _check_type(values: object, name: str, types: tuple[torch.dtype, ...]) -> None:
    known = ", ".join(str(kind).removeprefix("torch.") for kind in types)
    if not isinstance(values, Tensor):
        raise InvalidInputError(
            f"{name} is a {type(values).__name__}: it must be a torch.Tensor of {known}"
        )
    if values.dtype not in types or values.layout != torch.strided:
        raise InvalidInputError(
            f"{name} has shape {tuple(values.shape)}, type {values.dtype} and layout "
            f"{values.layout}: it must be a dense tensor of {known}"
        )


def _same_device(one: torch.device, other: torch.device) -> bool:
    return (one.type, one.index or 0) == (other.type, other.index or 0)


def _first(where: Tensor) -> tuple[int, ...]:
    return tuple(where.nonzero()[0].tolist())
