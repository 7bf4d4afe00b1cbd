"""Softmax, sampling of drafts, and random numbers for verification.

Drafts are sampled in float64.  `torch.multinomial` sums float32 rows in float32, where
probabilities below 6e-8 vanish, and can skip most tokens of a large vocabulary.  Its drafts do not
follow the q that is passed to the verifier, so verification would not be lossless.
"""

from __future__ import annotations

import sys
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from otlp.batched.checks import (
    FLOATS,
    check_devices,
    check_distribution,
    check_enough,
    check_floats,
    check_numbers,
    check_tokens,
    reads_values,
)
from otlp.batched.numerics import draw_index
from otlp.batched.rows import chunks, row_sums
from otlp.errors import InvalidInputError

MOST_DRAFTS = 100_000_000
"""Maximum number of drafts per row in one call."""


def softmax(logits: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Convert logits to probabilities, in float32 (float64 for float64 logits).

    Parameters
    ----------
    logits : Tensor, shape (..., V)
        Logits in float16, bfloat16, float32 or float64; minus infinity masks a token.
    temperature : float or Tensor, shape (...)
        Temperature of all rows or of each row, finite and greater than 0.

    Returns
    -------
    Tensor, shape (..., V)
        Probabilities; drafts must be sampled from exactly these numbers.  A row becomes NaN if it
        contains NaN or plus infinity, if all its tokens are masked, or if its temperature in a
        tensor is not greater than 0.  This function does not wait for the device and therefore does
        not raise; `sample` and the verifiers refuse NaN.

    Raises
    ------
    InvalidInputError
        If `logits` is not a floating-point tensor, or `temperature` is not a finite number greater
        than 0 or a floating-point tensor of shape (...).

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> batched.softmax(torch.tensor([[0.0, 0.0]]), temperature=0.5).tolist()
    [[0.5, 0.5]]
    """
    check_floats(logits, "logits")
    kind = torch.promote_types(logits.dtype, torch.float32)
    divisor: float | Tensor
    if isinstance(temperature, Tensor):
        wide, divisor = logits.to(kind), temperatures_of(temperature, logits)[..., None]
    else:
        limits, divisor = torch.finfo(kind), check_temperature(temperature)
        wide = logits.to(kind if limits.tiny <= divisor <= limits.max else torch.float64)
    # Subtract the largest entry first, so that a small temperature can only underflow.
    lowered = wide - wide.amax(-1, keepdim=True)
    return torch.softmax(lowered / divisor, dim=-1).to(kind)


def temperatures_of(temperature: float | Tensor, logits: Tensor) -> Tensor:
    """Return the temperature of each row of logits (..., V) in float32; NaN if it is invalid.

    Raises
    ------
    InvalidInputError
        If `temperature` is neither a number greater than 0 nor a floating-point tensor of shape
        (...) on the device of the logits.
    """
    if not isinstance(temperature, Tensor):
        number = check_temperature(temperature)
        return temperatures_of(
            logits.new_full(logits.shape[:-1], number, dtype=torch.float64), logits
        )
    if temperature.dtype not in FLOATS or temperature.shape != logits.shape[:-1]:
        raise InvalidInputError(
            f"temperature must be a number or a floating tensor of shape "
            f"{tuple(logits.shape[:-1])}, got shape {tuple(temperature.shape)} and type "
            f"{temperature.dtype}"
        )
    check_devices(temperature=temperature, logits=logits)
    found = temperature.detach().float()
    # The inverse of a subnormal number can overflow.
    return found.where((found >= torch.finfo(torch.float32).tiny) & found.isfinite(), torch.nan)


def check_temperature(temperature: object) -> float:
    """Return the temperature as a float.

    Raises
    ------
    InvalidInputError
        If `temperature` is not a finite number greater than 0.
    """
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if isinstance(temperature, np.floating):
        temperature = float(temperature)
    if not (number and 0.0 < temperature <= sys.float_info.max):  # type: ignore[operator]
        raise InvalidInputError(
            f"temperature must be a finite number greater than 0, got {temperature!r} (for greedy "
            "decoding use a point mass on the arg max)"
        )
    return float(temperature)  # type: ignore[arg-type]


def sample(
    probabilities: Tensor,
    n: int,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Tensor:
    """Sample n i.i.d. drafts per row, in float64.

    Parameters
    ----------
    probabilities : Tensor, shape (..., V)
        Distributions in float16, bfloat16, float32 or float64.  Each row is divided by its sum in
        float64, as in the verifiers.
    n : int
        Number of drafts per row, 1 to 100,000,000.
    generator : torch.Generator, Tensor or None
        Generator on the same device; None uses the default generator of PyTorch.  Or uniform random
        numbers, float64 of shape (..., n).
    validate : bool
        Whether to check the values of the input, which waits for the device.

    Returns
    -------
    Tensor, shape (..., n), int64
        Token ids of positive probability.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If an argument is invalid; the message names the row.

    Notes
    -----
    Inversion of prefix sums: O(V + n log V) per row.  Random numbers are multiples of 2^-53, so
    probabilities are exact to within 1.1e-16.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> batched.sample(draft, 4, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 4])
    """
    check_floats(probabilities, "probabilities")
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST_DRAFTS:
        raise InvalidInputError(f"n must be an int from 1 to {MOST_DRAFTS:,}, got {n!r}")
    vocab_size = probabilities.shape[-1]
    rows, numbers = _checked(probabilities, n, generator, validate)
    found = [draw_index(rows[i].double(), numbers[i]) for i in chunks(rows, vocab_size)]
    return torch.cat(found).view(*probabilities.shape[:-1], n)


def sample_without_replacement(
    probabilities: Tensor,
    n: int,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Tensor:
    """Sample n distinct drafts per row, sequentially without replacement, in float64.

    Parameters
    ----------
    probabilities, generator, validate
        As for `sample`; random numbers passed as a tensor have shape (..., V).
    n : int
        Number of drafts per row, at most its number of tokens of positive probability.

    Returns
    -------
    Tensor, shape (..., n), int64
        Token ids in the order drawn.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If an argument is invalid; the message names the row.

    Notes
    -----
    Exponential race: token i arrives with rate q_i, and the first n arrivals are kept.  Cost:
    O(V log n) per row.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = batched.sample_without_replacement(draft, 3, torch.Generator().manual_seed(0))
    >>> sorted(drafts[0].tolist())
    [0, 1, 2]
    """
    check_floats(probabilities, "probabilities")
    vocab_size = probabilities.shape[-1]
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= vocab_size:
        raise InvalidInputError(f"n must be an int from 1 to V = {vocab_size:,}, got {n!r}")
    rows, numbers = _checked(probabilities, vocab_size, generator, validate)
    if reads_values(validate, rows):
        check_enough(probabilities.detach(), n)
    found = [_first_arrivals(rows[i].double(), numbers[i], n) for i in chunks(rows, vocab_size)]
    return torch.cat(found).view(*probabilities.shape[:-1], n)


def _checked(
    probabilities: Tensor, width: int, generator: torch.Generator | Tensor | None, validate: bool
) -> tuple[Tensor, Tensor]:
    """Return checked distributions of shape (M, V) and random numbers of shape (M, width)."""
    *leading, vocab_size = probabilities.shape
    numbers = random_numbers((*leading, width), generator, probabilities, validate)
    rows = probabilities.detach()
    if reads_values(validate, rows):
        check_distribution(rows, row_sums(rows), "probabilities")
    return rows.reshape(-1, vocab_size), numbers.reshape(-1, width)


def _first_arrivals(rates: Tensor, numbers: Tensor, n: int) -> Tensor:
    # Clamp overflowing times, so that tokens of probability 0 (infinite time) come last.
    times = (torch.log1p(-numbers).neg_() / rates).clamp_(max=torch.finfo(torch.float64).max)
    times = times.masked_fill(rates <= 0, torch.inf)
    return times.topk(n, largest=False).indices


def uniforms(
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Tensor:
    """Draw the uniform random numbers for one verification of drafts.

    Parameters
    ----------
    draft_tokens : Tensor of int, shape (B, N) or (B, K, L)
        As for `otlp.batched.verify` or `otlp.batched.verify_paths`.
    generator : torch.Generator, Tensor or None
        Generator on the device of `draft_tokens`; None uses the default generator of PyTorch.
        Numbers drawn earlier are checked and returned.
    validate : bool
        Whether to check that numbers drawn earlier lie in [0, 1), which waits for the device.

    Returns
    -------
    Tensor, shape (B, 3 N + 2) or (B, K + L + 2), float64, in [0, 1)
        Random numbers, to be passed instead of a generator: to compiled code, or as the buffer that
        a CUDA graph reads and that is refilled before each replay.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type, `generator` is on another device, or the numbers have the
        wrong shape, type or range.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> batched.uniforms(torch.tensor([[0, 1]]), torch.Generator().manual_seed(0)).shape
    torch.Size([1, 8])
    """
    paths = isinstance(draft_tokens, Tensor) and draft_tokens.ndim == 3
    check_tokens(draft_tokens, "draft_tokens", "B, K, L" if paths else "B, N")
    batch, *sizes = draft_tokens.shape
    count = sum(sizes) + 2 if paths else 3 * sizes[0] + 2
    return random_numbers((batch, count), generator, draft_tokens, validate)


def random_numbers(
    shape: tuple[int, ...],
    generator: torch.Generator | Tensor | None,
    like: Tensor,
    validate: bool,
) -> Tensor:
    """Draw uniform float64 numbers on the device of `like`, or check numbers drawn earlier."""
    check_numbers(generator, shape, like.device, validate)
    if isinstance(generator, Tensor):
        return generator.detach().contiguous()
    return torch.rand(shape, dtype=torch.float64, device=like.device, generator=generator)
