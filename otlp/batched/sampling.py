"""What comes before verification: probabilities, drafts sampled from them, random numbers.

Drafts are sampled in float64.  `torch.multinomial` adds up float32 rows in float32, where
probabilities below 6e-8 vanish: it can leave out most tokens of a large vocabulary.  Its drafts do
not follow the q that the verifier is told, and nothing after that is lossless.
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
"""Of a row in one call."""


def softmax(logits: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Turn logits into probabilities, in float32 (float64 for float64 logits).

    Parameters
    ----------
    logits : Tensor, shape (..., V)
        Logits in float16, bfloat16, float32 or float64; minus infinity masks a token.
    temperature : float or Tensor, shape (...)
        Divides the logits, of all rows or of each; finite and greater than 0.

    Returns
    -------
    Tensor, shape (..., V)
        The drafts must be sampled from these very numbers.  A row that holds NaN or plus
        infinity, or whose tokens are all masked, or whose own temperature is not greater than 0,
        becomes NaN, which `sample` and the verifiers refuse: this function does not wait for the
        device.

    Raises
    ------
    InvalidInputError
        If the logits are no such tensor, or the temperature is no such number.

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
    # below the largest entry nothing overflows but to minus infinity, whatever the temperature
    lowered = wide - wide.amax(-1, keepdim=True)
    return torch.softmax(lowered / divisor, dim=-1).to(kind)


def temperatures_of(temperature: float | Tensor, logits: Tensor) -> Tensor:
    """The temperature of each row of logits (..., V), float32; NaN where no such number is one.

    Raises
    ------
    InvalidInputError
        If it is no number greater than 0, or no floating tensor of the shape (...) on one device
        with the logits.
    """
    if not isinstance(temperature, Tensor):
        number = check_temperature(temperature)
        return temperatures_of(
            logits.new_full(logits.shape[:-1], number, dtype=torch.float64), logits
        )
    if temperature.dtype not in FLOATS or temperature.shape != logits.shape[:-1]:
        raise InvalidInputError(
            f"temperature has shape {tuple(temperature.shape)} and type {temperature.dtype}: it "
            f"must be a number, or a floating tensor of shape {tuple(logits.shape[:-1])}"
        )
    check_devices(temperature=temperature, logits=logits)
    found = temperature.detach().float()
    # the inverse of a smaller number would overflow
    return found.where((found >= torch.finfo(torch.float32).tiny) & found.isfinite(), torch.nan)


def check_temperature(temperature: object) -> float:
    """The temperature as a float.

    Raises
    ------
    InvalidInputError
        If it is no finite number greater than 0.
    """
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if isinstance(temperature, np.floating):
        temperature = float(temperature)
    if not (number and 0.0 < temperature <= sys.float_info.max):  # type: ignore[operator]
        raise InvalidInputError(
            f"temperature is {temperature!r}: it must be a number, finite and greater than 0 "
            "(for greedy decoding use a point mass on the arg max)"
        )
    return float(temperature)  # type: ignore[arg-type]


def sample(
    probabilities: Tensor,
    n: int,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Tensor:
    """Sample n i.i.d. drafts of each row, in float64.

    Parameters
    ----------
    probabilities : Tensor, shape (..., V)
        Distributions in float16, bfloat16, float32 or float64, taken as stored: each row is
        divided by its sum in float64, as the verifiers do.
    n : int
        Drafts of each row, 1 to `MOST_DRAFTS`.
    generator : torch.Generator, Tensor or None
        On the same device; None is PyTorch's own; or uniform numbers, float64 of shape
        (..., n), drawn outside.
    validate : bool
        Look at the values of the input, which waits for the device.

    Returns
    -------
    Tensor, shape (..., n), int64
        Token ids, never one of probability 0.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        On bad input, naming the row.

    Notes
    -----
    By inversion of prefix sums: O(V + n log V) a row.  Random numbers are multiples of 2^-53,
    so probabilities are met to within 1.1e-16.

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
        raise InvalidInputError(f"n is {n!r}: it must be an int within 1 to {MOST_DRAFTS:,}")
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
    """Sample n different drafts of each row, each from what the earlier ones left, in float64.

    Parameters
    ----------
    probabilities, generator, validate
        As for `sample`; numbers drawn outside have the shape (..., V).
    n : int
        Drafts of each row, at most its tokens of positive probability.

    Returns
    -------
    Tensor, shape (..., n), int64
        Token ids in the order drawn.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        On bad input, naming the row.

    Notes
    -----
    An exponential race: arrivals of rate q_i, of which the first n are kept.  O(V log n) a row.

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
        raise InvalidInputError(f"n is {n!r}: it must be an int within 1 to V = {vocab_size:,}")
    rows, numbers = _checked(probabilities, vocab_size, generator, validate)
    if reads_values(validate, rows):
        check_enough(probabilities.detach(), n, "probabilities")
    found = [_first_arrivals(rows[i].double(), numbers[i], n) for i in chunks(rows, vocab_size)]
    return torch.cat(found).view(*probabilities.shape[:-1], n)


def _checked(
    probabilities: Tensor, width: int, generator: torch.Generator | Tensor | None, validate: bool
) -> tuple[Tensor, Tensor]:
    """Distributions of shape (M, V), and random numbers of shape (M, width)."""
    *leading, vocab_size = probabilities.shape
    numbers = random_numbers((*leading, width), generator, probabilities, validate)
    rows = probabilities.detach()
    if reads_values(validate, rows):
        check_distribution(rows, row_sums(rows), "probabilities")
    return rows.reshape(-1, vocab_size), numbers.reshape(-1, width)


def _first_arrivals(rates: Tensor, numbers: Tensor, n: int) -> Tensor:
    # what is never drafted stays behind what arrives late beyond all numbers
    times = (torch.log1p(-numbers).neg_() / rates).clamp_(max=torch.finfo(torch.float64).max)
    times = times.masked_fill(rates <= 0, torch.inf)
    return times.topk(n, largest=False).indices


def uniforms(
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Tensor:
    """Draw the random numbers that one verification of these drafts needs.

    Parameters
    ----------
    draft_tokens : Tensor of int, shape (B, N) or (B, K, L)
        As for `otlp.batched.verify` or `otlp.batched.verify_paths`.
    generator : torch.Generator, Tensor or None
        A generator on the device of `draft_tokens`; None is PyTorch's own; numbers drawn
        earlier are checked and returned.
    validate : bool
        See that numbers drawn earlier lie in [0, 1), which waits for the device.

    Returns
    -------
    Tensor, shape (B, 3 N + 2) or (B, K + L + 2), float64, in [0, 1)
        May be passed in place of a generator: into compiled code, or as the buffer that a CUDA
        graph reads and that is refilled before each replay.

    Raises
    ------
    InvalidInputError
        If an argument has another type, the source lies on another device, or the numbers have
        another shape, type or range.

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
    """Draw uniform numbers in float64 on the device of `like`, or check those drawn earlier."""
    check_numbers(generator, shape, like.device, validate)
    if isinstance(generator, Tensor):
        return generator.detach().contiguous()
    return torch.rand(shape, dtype=torch.float64, device=like.device, generator=generator)
