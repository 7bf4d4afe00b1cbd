"""Hugging Face transformers: the verifier of assisted generation, and its candidates."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otlp.lab.engines.candidate_generators import judge_candidates, shipped
from otlp.lab.engines.engine import Engine


def _load() -> Callable[..., Any]:
    import torch
    from transformers.generation import utils

    verify = utils._speculative_sampling

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        length = draft_tokens.shape[1]
        target, draft = (torch.from_numpy(law).log() for law in (p, q))
        # transformers 4 takes a flag that the last candidate ends the text, 5 does not
        takes = inspect.signature(verify).parameters
        flags = {"is_done_candidate": False} if "is_done_candidate" in takes else {}
        tokens, _ = verify(torch.from_numpy(draft_tokens), draft, length, target, **flags)
        return tokens[0]

    return rule


HUGGING_FACE = Engine(
    name="hugging-face",
    package="transformers",
    function="generation.utils._speculative_sampling",
    known=("4.56.", "4.57.", "5."),
    load=_load,
    candidates=lambda samples, seed, rate: judge_candidates(shipped(seed), samples, seed, rate),
)
