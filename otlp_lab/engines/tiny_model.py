"""A tiny model with random weights, for tests of transformers' assisted generation."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def tiny_model(vocab_size: int) -> Any:
    """Return a GPT-2 with random weights whose distributions are far from uniform."""
    transformers: Any = import_module("transformers")
    sizes = {"vocab_size": vocab_size, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.lm_head.weight.data.mul_(6.0)
    model.generation_config.num_assistant_tokens = 2
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0  # draft paths of full length
    return model
