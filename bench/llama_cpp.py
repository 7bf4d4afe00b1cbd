"""Decoding with llama.cpp from a GGUF file, plain and with its own n-gram drafts.

    pip install xllamacpp        # wheels of llama.cpp; no other package is needed

The weights stay quantised, so the precision differs from that of other ways in a table.
"""

from __future__ import annotations

from importlib.util import find_spec
from time import perf_counter, process_time
from typing import Any

from otlp.decode.models.model import Sampling
from otlp.distribution import IntArray
from otlp.studies.timed import Decoding
from otlp_lab.tuning.side_by_side import Way


def llama_cpp(
    path: str, slots: int, tokens: int, sampling: Sampling, threads: int
) -> dict[str, Way]:
    """Return ways of decoding with llama.cpp; empty if xllamacpp is not installed."""
    if find_spec("xllamacpp") is None:
        return {}
    import xllamacpp

    kinds = xllamacpp.common_speculative_type
    types = {
        "llama.cpp": kinds.COMMON_SPECULATIVE_TYPE_NONE,
        "llama.cpp, n-grams": kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE,
    }
    wanted = {
        "max_tokens": tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p,
        "samplers": ["temperature", "top_k", "top_p"],
        "ignore_eos": True,
        "cache_prompt": False,
    }
    return {name: _way(xllamacpp, path, slots, kind, threads, wanted)
            for name, kind in types.items()}  # fmt: skip


def _way(
    engine: Any, path: str, slots: int, speculation: Any, threads: int, wanted: dict[str, Any]
) -> Way:
    params = engine.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, slots, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.speculative.types = [speculation]
    params.verbosity = 0
    server = engine.Server(params)

    def way(prompt: IntArray, seed: int) -> Decoding:
        wall, processor = perf_counter(), process_time()
        answer = server.handle_completions({"prompt": prompt.tolist(), "seed": seed, **wanted})
        times = perf_counter() - wall, process_time() - processor
        made = answer["usage"]["completion_tokens"]
        calls = made - answer["timings"].get("draft_n_accepted", 0)
        return Decoding(made, float(calls), calls, {}, *times)

    return way
