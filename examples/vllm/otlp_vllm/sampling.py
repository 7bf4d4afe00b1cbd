"""Block verification in vLLM's V1 rejection sampler, and a repair of one of its functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def expand_batch_to_tokens(
    x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Tensor:
    """Repeat the value of each request for each of its drafted tokens, replacing one value."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return values.repeat_interleave(counts.long(), output_size=num_tokens)


def instead_of(
    shipped: Callable[..., Tensor],
    rule: Callable[..., Tensor],
    applies: Callable[[dict[str, Any]], bool],
) -> Callable[..., Tensor]:
    """Return a function with vLLM's arguments that calls the rule if it applies to them."""
    parameters = inspect.signature(shipped)
    needed = inspect.signature(rule).parameters

    @wraps(shipped)
    def rejection_sample(*args: Any, **named: Any) -> Tensor:
        call = parameters.bind(*args, **named)
        call.apply_defaults()
        if not applies(call.arguments):
            return shipped(*args, **named)
        return rule(**{name: call.arguments[name] for name in needed})

    return rejection_sample


def verify_blocks(
    draft_token_ids: Tensor,
    num_draft_tokens: list[int],
    max_spec_len: int,
    cu_num_draft_tokens: Tensor,
    draft_probs: Tensor | None,
    target_logits: Tensor,
    bonus_token_ids: Tensor,
    sampling_metadata: Any,
) -> Tensor:
    """Verify each request's path as a block; shape (requests, max_spec_len + 1), padded with -1.

    Target and draft of a greedy request are point masses.  A path ends before a drafted token -1;
    the next token is then drawn from the target.
    """
    from otlp import batched

    target = target_logits.softmax(-1, dtype=torch.float64)
    (drafted, size), requests, device = target.shape, len(num_draft_tokens), target.device
    ends, each = cu_num_draft_tokens.long(), torch.arange(requests, device=target.device)
    request = expand_batch_to_tokens(each, ends, drafted)

    def points(tokens: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(tokens.long().clamp(min=0), size).double()

    if sampling_metadata.all_greedy:
        greedy = torch.ones_like(request, dtype=torch.bool)[:, None]
    else:
        greedy = (sampling_metadata.temperature == 0)[request][:, None]
    target = torch.where(greedy, points(target_logits.argmax(-1)), target)
    draft = None
    if draft_probs is not None:
        draft = torch.where(greedy, points(draft_token_ids), draft_probs.double())
    rows = target.new_empty(drafted + requests, size)
    rows[torch.arange(drafted, device=device) + request] = target
    # vLLM has already drawn the token after a whole path.
    rows[ends + each] = points(bonus_token_ids.view(-1))

    drawn: dict[str, Any] = {"dtype": torch.float64, "device": device}
    numbers = torch.rand(requests, max_spec_len + 3, **drawn)
    for one, generator in sampling_metadata.generators.items():
        count = num_draft_tokens[one]
        if count:  # like vLLM, so that a request's text does not depend on other requests
            own = torch.rand(count + 3, generator=generator, **drawn)
            numbers[one, : count + 2], numbers[one, -1] = own[:-1], own[-1]
    found = batched.verify_requests(
        rows, draft, draft_token_ids, ends, numbers, max_spec_len=max_spec_len, validate=False
    )
    return found.tokens.to(torch.int32)
