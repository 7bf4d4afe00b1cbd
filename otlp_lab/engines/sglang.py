"""SGLang: the Triton kernel for chains, which verifies by token or by block.

The file of the kernel needs only Triton.  Without a GPU set TRITON_INTERPRET=1: a round takes some
hundredths of a second.  The kernel for trees is compiled with CUDA and cannot run without a GPU.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from otlp.auditing.module_of_file import module_of_file
from otlp_lab.engines.engine import Engine


def _load(block: bool) -> Callable[..., Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        # Triton reads this variable when the kernel is defined.
        os.environ.setdefault("TRITON_INTERPRET", "1")
    # Do not import the package, which may need a GPU.
    package = importlib.util.find_spec("sglang")
    if package is None or package.origin is None:
        raise ImportError("no package sglang")
    folder = Path(package.origin).parent / "kernels" / "ops" / "speculative"
    kernels = module_of_file(folder / "reject_sampling.py")

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        def tensor(values: Any, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.as_tensor(values).to(device=device, dtype=kind).contiguous()

        rounds, _, length = draft_tokens.shape
        width = length + 1
        # The first slot is the token before the round.
        slots = torch.nn.functional.pad(tensor(draft_tokens[:, 0], torch.int64), (1, 0))
        places = torch.arange(rounds * width, device=device).view(rounds, width)
        predicts = torch.zeros(rounds * width, dtype=torch.int32, device=device)
        index = torch.full((rounds, width), -1, dtype=torch.int32, device=device)
        accepted = torch.zeros(rounds, dtype=torch.int32, device=device)
        kernels.chain_speculative_sampling_triton(
            predicts,
            index,
            accepted,
            slots,
            places,
            None,
            None,
            tensor(rng.random((rounds, width), dtype="float32")),
            tensor(rng.random(rounds, dtype="float32")),
            tensor(p[:, 0]),
            tensor(q[:, 0]),
            1.0,
            1.0,
            True,
            block_verification=block,
        )
        valid = torch.arange(width, device=device) <= accepted[:, None]
        return torch.where(valid, predicts.view(rounds, width), -1).cpu()

    return rule


_ENGINE = partial(Engine, package="sglang", known=("0.5.23",), batch=256)

ENGINES = (
    _ENGINE(
        name="sglang-chain",
        function="chain_speculative_sampling_triton",
        load=lambda: _load(block=False),
    ),
    _ENGINE(
        name="sglang-block",
        function="chain_speculative_sampling_triton(block_verification=True)",
        load=lambda: _load(block=True),
    ),
)
