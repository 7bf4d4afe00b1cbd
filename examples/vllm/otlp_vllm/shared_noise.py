"""Sampled verification in vLLM's V1 runner, with drafts that share the target's noise.

The noise of a token depends only on the request's seed and the position in the text.  The target
samples every token with this noise, and the draft samples its tokens with the same noise.  A draft
token is accepted if it equals the target's token.  Up to rounding errors of the logits, the text
does not depend on the draft.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from itertools import takewhile
from operator import add
from typing import Any

import torch
from torch import Tensor

GREEDY = 1e-5
"""Temperatures below it are greedy, as in vLLM's sampler."""


@dataclass(frozen=True)
class Noise:
    """The noise of a batch of requests.

    Attributes
    ----------
    sample : callable
        vLLM's function of logits and generators, which returns one token for each row.
    seeds : sequence of int or None
        Seed of each request; None for a greedy request.
    positions : sequence of int
        Position in the text of each request's next token.
    """

    sample: Callable[..., tuple[Tensor, Tensor | None]]
    seeds: Sequence[int | None]
    positions: Sequence[int]

    def after(self, tokens: Sequence[int]) -> Noise:
        """Return the noise after some more tokens of each request."""
        return replace(self, positions=list(map(add, self.positions, tokens)))

    def generators(self, rows: Iterable[tuple[int, int]]) -> dict[int, torch.Generator]:
        """Return a generator for each row: a request, and the tokens before its position."""
        found = {}
        for row, (request, ahead) in enumerate(rows):
            seed = self.seeds[request]
            if seed is not None:
                key = f"{seed} {self.positions[request] + ahead}".encode()
                digest = hashlib.blake2b(key, digest_size=8).digest()
                found[row] = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        return found

    def tokens(self, logits: Tensor, rows: Sequence[tuple[int, int]]) -> Tensor:
        """Return the token of each row, shape (M,), for logits after the temperature, (M, V)."""
        sampled = self.sample(logits, self.generators(rows), None, None)[0]
        greedy = [self.seeds[request] is None for request, _ in rows]
        is_greedy = torch.tensor(greedy, dtype=torch.bool)
        return torch.where(is_greedy, logits.argmax(-1), sampled.long())


def seed_of(name: str, request: Any, log: Callable[..., None]) -> int | None:
    """Return the request's seed, or draw and report one; None if the request is greedy."""
    parameters = request.sampling_params
    if parameters.temperature < GREEDY:
        return None
    if parameters.seed is None:
        # Several samples of one prompt can share an object.
        parameters = request.sampling_params = copy(parameters)
        # The engine's own seed determines these numbers.
        parameters.seed = random.getrandbits(63)
        log("Request %s has no seed; otlp-vllm uses %d", name, parameters.seed)
    return int(parameters.seed)


def sampling_with_noise(sample: Callable[..., Any], log: Callable[..., None]) -> Any:
    """Return `GPUModelRunner._sample` with generators that depend on seed and position."""

    @wraps(sample)
    def _sample(runner: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        batch, drafted = runner.input_batch, [0] * runner.input_batch.num_reqs
        if spec_decode_metadata is not None:
            drafted = spec_decode_metadata.num_draft_tokens
            if not any(drafted):
                # A grammar can remove all drafts; vLLM's top-k then fails on a CPU.
                spec_decode_metadata = None
        requests = [runner.requests[name] for name in batch.req_ids]
        seeds = [seed_of(*one, log) for one in zip(batch.req_ids, requests, strict=True)]
        positions = batch.num_tokens_no_spec[: len(requests)].tolist()
        noise = Noise(runner.sampler.topk_topp_sampler, seeds, positions)
        # vLLM rewinds these generators after a part of a prompt, which fails on a CPU.
        batch.generators.clear()
        own = noise.generators(enumerate(drafted))
        batch.sampling_metadata = replace(batch.sampling_metadata, generators=own)
        batch.sampling_metadata.noise = noise
        output = sample(runner, logits, spec_decode_metadata)
        for one, (request, count) in enumerate(zip(requests, drafted, strict=True)):
            written = len(request.output_token_ids)
            if written < request.sampling_params.min_tokens <= written + count:
                # vLLM forbids the end here, although the draft tokens reach the minimum length.
                output.sampled_token_ids[one, count] = -1
        batch.sampling_metadata.noise = noise.after((output.sampled_token_ids >= 0).sum(1).tolist())
        return output

    return _sample


def sample_draft_tokens(
    proposer: Any, hidden_states: Tensor, sampling_metadata: Any
) -> tuple[Tensor, None]:
    """Sample one draft token per request with the noise; instead of vLLM's method."""
    logits = proposer.model.compute_logits(hidden_states).float()
    noise, requests = sampling_metadata.noise, len(logits)
    if sampling_metadata.temperature is not None:
        temperature = sampling_metadata.temperature[:, None]
        logits /= torch.where(temperature < GREEDY, 1.0, temperature)
    sampling_metadata.noise = noise.after([1] * requests)
    return noise.tokens(logits, [(request, 0) for request in range(requests)]), None


def verify_equality(
    draft_token_ids: Tensor,
    num_draft_tokens: list[int],
    max_spec_len: int,
    target_logits: Tensor,
    bonus_token_ids: Tensor,
    sampling_metadata: Any,
) -> Tensor:
    """Sample the target's tokens and accept equal draft tokens.

    Returns shape (requests, max_spec_len + 1), padded with -1.
    """
    rows = [(one, place) for one, count in enumerate(num_draft_tokens) for place in range(count)]
    sampled = sampling_metadata.noise.tokens(target_logits, rows).split(num_draft_tokens)
    drafted = draft_token_ids.split(num_draft_tokens)
    output = torch.full((len(num_draft_tokens), max_spec_len + 1), -1, dtype=torch.int32)
    for one, (own, other, bonus) in enumerate(zip(sampled, drafted, bonus_token_ids, strict=True)):
        accepted = sum(takewhile(bool, (own == other).tolist()))
        output[one, : accepted + 1] = torch.cat([own, bonus.view(1)])[: accepted + 1]
    return output


def checked(create: Callable[..., Any]) -> Any:
    """Return `EngineArgs.create_engine_config`, which now refuses what is not supported.

    It raises ValueError, which names the option.
    """

    @wraps(create)
    def create_engine_config(*args: Any, **named: Any) -> Any:
        config = create(*args, **named)
        parallel, drafts = config.parallel_config, config.speculative_config
        needed: list[tuple[str, object, object]] = [
            ("the model runner", "V2" if config.use_v2_model_runner else "V1", "V1"),
            ("the device", config.device_config.device_type, "cpu"),
            ("tensor_parallel_size", parallel.tensor_parallel_size, 1),
            ("pipeline_parallel_size", parallel.pipeline_parallel_size, 1),
            ("async_scheduling", bool(config.scheduler_config.async_scheduling), False),
        ]
        if drafts is not None:
            needed += [
                ("rejection_sample_method", drafts.rejection_sample_method, "standard"),
                ("draft_sample_method", drafts.draft_sample_method, "greedy"),
                ("use_heterogeneous_vocab", drafts.use_heterogeneous_vocab, False),
                ("parallel_drafting", drafts.parallel_drafting, False),
            ]
        for name, found, supported in needed:
            if found != supported:
                raise ValueError(
                    f"{name} must be {supported!r} with OTLP_VLLM_RULE=shared-noise, got {found!r}"
                )
        return config

    return create_engine_config
