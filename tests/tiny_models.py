"""Tiny language models of many architectures, with random weights."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

SIZE = 64
"""Vocabulary size of all models."""
COMMON = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
LLAMA = {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {**LLAMA, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}

AT_ONCE: dict[str, dict[str, Any]] = {
    "apertus": LLAMA,
    "arcee": LLAMA,
    "bert": {"is_decoder": True, "intermediate_size": 48},
    "biogpt": {"intermediate_size": 48},
    "cohere": LLAMA,
    "ctrl": {"dff": 48},
    "exaone4": {**LLAMA, "sliding_window": 6},
    "gemma": LLAMA,
    "gemma2": {**LLAMA, "sliding_window": 6},
    "gemma3_text": {**LLAMA, "sliding_window": 6},
    "glm": LLAMA,
    "gpt2": {},
    "gpt_bigcode": {},
    "gpt_neox": {"intermediate_size": 48},
    "gpt_oss": {**EXPERTS, "sliding_window": 6},
    "gptj": {"rotary_dim": 8},
    "granite": LLAMA,
    "granitemoe": EXPERTS,
    "llama": LLAMA,
    "mistral": {**LLAMA, "sliding_window": 6},
    "mixtral": EXPERTS,
    "olmo2": LLAMA,
    "olmoe": EXPERTS,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi": {"intermediate_size": 48},
    "phi3": LLAMA,
    "qwen2": LLAMA,
    "qwen2_moe": {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    "qwen3": LLAMA,
    "smollm3": LLAMA,
    "stablelm": LLAMA,
    "starcoder2": LLAMA,
    "xglm": {"d_model": 32, "ffn_dim": 48, "attention_heads": 2, "num_layers": 2},
}
"""Architectures that evaluate a tree in one call with an attention mask."""
AS_PATHS: dict[str, dict[str, Any]] = {
    "bart": {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2},
    "bloom": {},
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "num_layers": 2,
        "num_heads": 2,
        "window_size": 6,
    },
    "llama4_text": {
        **EXPERTS,
        "attention_chunk_size": 6,
        "intermediate_size_mlp": 48,
        "num_experts_per_tok": 1,
    },
    "mpt": {"d_model": 32, "n_heads": 2, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 128},
}
"""Architectures that evaluate a batch of paths: chunks, or positions not set by a mask."""
REFUSED: dict[str, dict[str, Any]] = {
    "falcon_mamba": {},
    "mamba": {},
    "megatron-bert": {"intermediate_size": 48},
    "openai-gpt": {},
    "recurrent_gemma": {**LLAMA, "lru_width": 32},
    "rwkv": {"attention_hidden_size": 32},
    "xlm": {},
}
"""Unsupported: recurrent models, models without a cache, and models that are not causal."""


def tiny(kind: str, seed: int = 0, **settings: Any) -> Any:
    """Return a model; skip the test if transformers does not have the architecture."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    if kind not in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        pytest.skip(f"no {kind} in transformers {transformers.__version__}")
    torch.manual_seed(seed)
    known = {**AT_ONCE, **AS_PATHS, **REFUSED}.get(kind, {})
    config = transformers.AutoConfig.for_model(kind, **{**COMMON, **known, **settings})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            # Scale weights: nearly uniform attention would hide errors in the mask.
            weight.mul_(6.0 if weight.dim() > 1 else 1.0)
    return model


def tiny_pair() -> tuple[Any, Any]:
    """Return a draft and a target for `generate`, for up to 64 tokens."""
    settings = {"max_position_embeddings": 64, "tie_word_embeddings": False}
    return tiny("gpt2", 1, **settings), tiny("gpt2", 2, **settings)


def generated(pair: tuple[Any, Any], prompt: Any, mask: Any = None, **options: Any) -> Any:
    """Return the outputs of plain and own `generate`, greedy unless `options` set do_sample."""
    import torch

    from otlp_lab.generation import generate

    draft, target = pair
    given = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, **options}
    given["attention_mask"] = torch.ones_like(prompt) if mask is None else mask
    given = {name: value for name, value in given.items() if value is not None}
    # transformers 4.56 needs a function with bound arguments
    own = partial(generate, draft_model=draft, paths=3, length=3)
    found = []
    for more in ({}, {"custom_generate": own}):
        torch.manual_seed(0)
        found.append(target.generate(prompt, **copy.deepcopy(given), **more))
    return found
