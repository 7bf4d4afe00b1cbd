"""Verifiers of serving engines, one file an engine, found where installed."""

from otlp.lab.engines.engine import Engine
from otlp.lab.engines.hugging_face import HUGGING_FACE
from otlp.lab.engines.sglang import SGLANG_BLOCK, SGLANG_CHAIN
from otlp.lab.engines.vllm import VLLM_V1, VLLM_V2, VLLM_V2_BLOCK

__all__ = ["ENGINES", "Engine"]

_ALL = (HUGGING_FACE, SGLANG_CHAIN, SGLANG_BLOCK, VLLM_V1, VLLM_V2, VLLM_V2_BLOCK)

ENGINES = {engine.name: engine for engine in _ALL}
"""Engines by name."""
