"""Verifiers of installed inference engines, one file per engine."""

from otlp_lab.engines.engine import Engine
from otlp_lab.engines.hugging_face import (
    HUGGING_FACE,
    HUGGING_FACE_ENSEMBLE,
    HUGGING_FACE_PROCESSORS,
)
from otlp_lab.engines.sglang import SGLANG_BLOCK, SGLANG_CHAIN
from otlp_lab.engines.vllm import VLLM_V1, VLLM_V1_PROCESSORS, VLLM_V2, VLLM_V2_BLOCK, VLLM_V2_ROUND

__all__ = ["ENGINES", "Engine"]

_ALL = (
    HUGGING_FACE,
    HUGGING_FACE_ENSEMBLE,
    HUGGING_FACE_PROCESSORS,
    SGLANG_CHAIN,
    SGLANG_BLOCK,
    VLLM_V1,
    VLLM_V1_PROCESSORS,
    VLLM_V2,
    VLLM_V2_BLOCK,
    VLLM_V2_ROUND,
)

ENGINES = {engine.name: engine for engine in _ALL}
"""Engines by name."""
