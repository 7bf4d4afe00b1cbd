"""What replaces two functions of vLLM's V1 rejection sampler, with their arguments and results."""

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
    """Repeat a value of each request for each of its drafted tokens, replacing one value."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return values.repeat_interleave(counts.long(), output_size=num_tokens)


def block_instead_of(shipped: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Block verification where vLLM would verify by token; synthetic modes stay vLLM's own."""
    parameters = inspect.signature(shipped)
    asked = inspect.signature(verify_requests).parameters

    @wraps(shipped)
    def rejection_sample(*args: Any, **named: Any) -> Tensor:
        call = parameters.bind(*args, **named)
        call.apply_defaults()
        if call.arguments["synthetic_mode"]:
            return shipped(*args, **named)
        return verify_requests(**{name: call.arguments[name] for name in asked})

    return rejection_sample


def verify_requests(
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

    A greedy request is one whose target and draft are point masses.  Tokens that were drafted as
    -1, and those after them, are left out of a path; the next token is drawn from the target.
    """
    from otlp import batched

    target = target_logits.softmax(-1, dtype=torch.float64)
    size, device, requests = target.shape[1], target.device, len(num_draft_tokens)

    def points(tokens: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(tokens.long().clamp(min=0), size).double()

    certain = points(draft_token_ids)
    draft = certain if draft_probs is None else draft_probs.double()
    if sampling_metadata.all_greedy:
        greedy = torch.ones(requests, dtype=torch.bool, device=device)
    else:
        greedy = sampling_metadata.temperature == 0
    greedy = greedy.repeat_interleave(torch.tensor(num_draft_tokens, device=device))[:, None]
    target = torch.where(greedy, points(target_logits.argmax(-1)), target)
    draft = torch.where(greedy, certain, draft)
    # vLLM has drawn the token after a whole path
    ends = cu_num_draft_tokens.long()
    last = torch.zeros(len(target) + requests, dtype=torch.bool, device=device)
    last[ends + torch.arange(requests, device=device)] = True
    rows = target.new_empty(len(last), size)
    rows[last], rows[~last] = points(bonus_token_ids.view(-1)), target

    drawn: dict[str, Any] = {"dtype": torch.float64, "device": device}
    numbers = torch.rand(requests, max_spec_len + 3, **drawn)
    for request, generator in sampling_metadata.generators.items():
        count = num_draft_tokens[request]
        own = torch.rand(count + 3, generator=generator, **drawn)  # whatever the others' lengths
        numbers[request, : count + 2], numbers[request, -1] = own[:-1], own[-1]
    found = batched.verify_requests(
        rows, draft, draft_token_ids, ends, numbers, max_spec_len=max_spec_len, validate=False
    )
    return found.tokens.to(torch.int32)
