"""The `martingale` rule for a target given by logits."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.checks import check_devices, check_floats, check_logits, reads_values
from otlp.batched.kernels import supports_kernels
from otlp.batched.martingale_rule import martingale
from otlp.batched.rows import check_drafts, prepare
from otlp.batched.sampling import softmax, temperatures_of, uniforms
from otlp.errors import InvalidInputError


def martingale_from_logits(
    target_logits: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    temperature: float | Tensor = 1.0,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts per row, given the logits of the target.

    The output follows `otlp.batched.softmax` of the logits, as the output of
    `otlp.batched.martingale` follows p.  The GPU kernels compute p in float32 wherever they read it
    and do not store p.  The last digit of p can then differ from `otlp.batched.softmax`, which
    seldom changes a token.

    Parameters
    ----------
    target_logits : Tensor, shape (B, V)
        Logits in float16, bfloat16, float32 or float64; minus infinity masks a token.
    draft : Tensor, shape (B, V)
        Draft probabilities q (not logits): the exact numbers that the drafts were sampled from.
    draft_tokens, generator, validate
        As for `otlp.batched.martingale`.
    temperature : float or Tensor, shape (B,)
        Temperature of all rows or of each row, greater than 0 and in the range of float32.

    Returns
    -------
    tokens, accepted : Tensor, shape (B,)
        As returned by `otlp.batched.martingale`.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        If an argument is invalid; the message names the argument and the row.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target_logits, draft_logits = torch.randn(2, 4, 100, generator=generator)
    >>> draft = batched.softmax(draft_logits)
    >>> drafts = batched.sample(draft, 2, generator)
    >>> temperature = torch.tensor([0.5, 0.7, 1.0, 1.0])
    >>> tokens, accepted = batched.martingale_from_logits(
    ...     target_logits, draft, drafts, generator, temperature=temperature
    ... )
    >>> tokens.shape
    torch.Size([4])
    """
    check_floats(target_logits, "target_logits", 2)
    check_floats(draft, "draft", 2)
    if target_logits.shape != draft.shape:
        raise InvalidInputError(
            f"target_logits must have the shape of draft, {tuple(draft.shape)}, got "
            f"{tuple(target_logits.shape)}"
        )
    check_devices(target_logits=target_logits, draft=draft)
    divisors = temperatures_of(temperature, target_logits)
    if reads_values(validate, target_logits):
        check_logits(target_logits, divisors)
    device, compiling = target_logits.device, torch.compiler.is_compiling()
    # The kernels compute in float32 and therefore do not accept float64 logits.
    narrow = target_logits.dtype != torch.float64
    if device.type == "cpu" or compiling or not (narrow and supports_kernels(device)):
        target = softmax(target_logits.detach(), temperature)
        return martingale(target, draft, draft_tokens, generator, validate=validate)
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    rows = prepare(target_logits, draft, draft_tokens, validate=False)
    if reads_values(validate, draft):
        check_drafts(rows.draft, rows.tokens)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    return verify_on_gpu(rows, numbers, divisors)
