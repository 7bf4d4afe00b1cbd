"""Verifiers of installed inference engines, one file per engine."""

from otlp_lab.engines import hugging_face, sglang, vllm
from otlp_lab.engines.engine import Engine

__all__ = ["ENGINES", "Engine"]

ENGINES = {
    engine.name: engine for engine in (*hugging_face.ENGINES, *sglang.ENGINES, *vllm.ENGINES)
}
"""Engines by name."""
