"""What replaces two functions of vLLM's V1 rejection sampler, with their arguments and results."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

PADDING = -1


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
    draft_probs: Tensor | None,
    target_logits: Tensor,
    bonus_token_ids: Tensor,
    sampling_metadata: Any,
) -> Tensor:
    """Verify each request's path as a block; shape (requests, max_spec_len + 1), padded with -1.

    Requests of one number of drafted tokens are verified together.  A greedy request is one whose
    target and draft are point masses.  Tokens that were drafted as -1, and those after them, are
    left out of a path; what follows it is drawn from the target.
    """
    from otlp.batched import verify_paths

    generators = sampling_metadata.generators
    target = target_logits.softmax(-1, dtype=torch.float64)
    size, device = target.shape[1], target.device
    drafted = draft_token_ids.long()
    points = torch.nn.functional.one_hot(drafted.clamp(min=0), size).double()
    draft = points if draft_probs is None else draft_probs.double()
    best = torch.nn.functional.one_hot(target_logits.argmax(-1), size).double()
    bonus = torch.nn.functional.one_hot(bonus_token_ids.view(-1).long(), size).double()
    if sampling_metadata.all_greedy:
        greedy = [True] * len(num_draft_tokens)
    else:
        greedy = (sampling_metadata.temperature == 0).tolist()

    groups: dict[int, list[tuple[int, Tensor, Tensor, Tensor]]] = defaultdict(list)
    output = torch.full(
        (len(num_draft_tokens), max_spec_len + 1), PADDING, dtype=torch.int32, device=device
    )
    start = 0
    for request, count in enumerate(num_draft_tokens):
        here = slice(start, start + count)
        start += count
        path = drafted[here]
        length = int((path >= 0).long().cumprod(0).sum())
        p, q = (best, points) if greedy[request] else (target, draft)
        if length == 0:
            # the bonus token, or if drafts were padding one from the target at their place
            token = bonus_token_ids.view(-1)[request]
            if count:
                token = p[here][0].multinomial(1, generator=generators.get(request))
            output[request, 0] = token
            continue
        after = bonus[request] if length == count else p[here][length]
        rows = torch.cat([p[here][:length], after[None]])
        groups[length].append((request, rows, q[here][:length], path[:length]))
    for length, members in groups.items():
        drawn: dict[str, Any] = {"dtype": torch.float64, "device": device}
        numbers = torch.stack(
            [torch.rand(length + 3, generator=generators.get(one[0]), **drawn) for one in members]
        )
        p, q, path = (torch.stack(part) for part in list(zip(*members, strict=True))[1:])
        found = verify_paths(p[:, None], q[:, None], path[:, None], numbers, validate=False)
        requests = torch.tensor([one[0] for one in members], device=device)
        output[requests, : length + 1] = found.tokens.to(torch.int32)
    return output
