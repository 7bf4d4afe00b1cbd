"""Serve the trained pair in vLLM with and without the plug-in: mean length and a G-test.

    bash plugins/vllm/install.sh FOLDER          # once: a virtual environment of 4 GB
    FOLDER/bin/python plugins/vllm/measure.py [--texts 2000] [--length 4]

A way is run in a process of its own.  Mean length: 1 + accepted tokens / rounds, as vLLM counts
them, over texts of 48 tokens at temperature 1.  G-test: the first five tokens of one prompt at
temperature 0.4 against their exact law under the target, unlikely ones in cells together; rejected
below 1e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

WAYS = {
    "shipped, greedy drafts": ("greedy", {"VLLM_PLUGINS": "none"}),
    "shipped, sampled drafts": ("probabilistic", {"VLLM_PLUGINS": "none"}),
    "mended, vLLM's rule by token": ("probabilistic", {"OTLP_VLLM_RULE": "token"}),
    "plug-in, block": ("probabilistic", {"OTLP_VLLM_RULE": "block"}),
}
PROMPT = "def main(argv):\n    "
PLACES, TEMPERATURE, RATE = 5, 0.4, 1e-6
LEAST, OTHER = 3e-3, -1
# prefixes that are less likely are a cell together with their like
NAMES = ("vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_drafts")


def folders() -> tuple[str, str]:
    from otlp.decode.models.loading import TRAINED_PAIR, find_model

    target, draft = (find_model(name) for name in TRAINED_PAIR)
    return target, draft


def serve(sampled: str, texts: int, length: int) -> dict[str, Any]:
    """In a process of its own: generate with vLLM, and count."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm import LLM, SamplingParams

    target, draft = folders()
    llm = LLM(
        model=target,
        dtype="float32",
        max_model_len=256,
        disable_log_stats=False,
        enforce_eager=True,
        gpu_memory_utilization=0.2,  # on a CPU: of the memory
        speculative_config={
            "method": "draft_model",
            "model": draft,
            "num_speculative_tokens": length,
            "draft_sample_method": sampled,
        },
    )

    def counted() -> list[int]:
        values = {
            metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")
        }
        return [int(values[name]) for name in NAMES]

    before = counted()
    free = SamplingParams(temperature=1.0, max_tokens=48, ignore_eos=True)
    llm.generate([PROMPT] * 64, free, use_tqdm=False)
    accepted, rounds = (b - a for a, b in zip(before, counted(), strict=True))
    held = SamplingParams(temperature=TEMPERATURE, max_tokens=PLACES, ignore_eos=True)
    found = llm.generate([PROMPT] * texts, held, use_tqdm=False)
    outputs = [list(one.outputs[0].token_ids) for one in found]
    return {"length": 1 + accepted / rounds, "outputs": outputs}


def law() -> dict[tuple[int, ...], float]:
    """The exact law of the first places, by prefixes and what does not go on as any of them."""
    import torch
    import transformers

    target, _ = folders()
    model = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    start = tokenizer(PROMPT)["input_ids"]
    cells: dict[tuple[int, ...], float] = {}
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(PLACES):
        longer = {}
        for text, mass in texts.items():
            with torch.no_grad():
                logits = model(torch.tensor([[*start, *text]])).logits[0, -1]
            parts = mass * (logits.double() / TEMPERATURE).softmax(-1)
            likely = (parts >= LEAST).nonzero()[:, 0].tolist()
            longer.update({(*text, token): float(parts[token]) for token in likely})
            cells[(*text, OTHER)] = mass - float(parts[likely].sum())
        texts = longer
    return {**cells, **texts}


def cell_of(text: list[int], cells: dict[tuple[int, ...], float]) -> tuple[int, ...]:
    """The cell that a text falls into."""
    for place in range(PLACES):
        if (*text[:place], OTHER) in cells and not any(
            (*text[: place + 1], *end) in cells for end in ((), (OTHER,))
        ):
            return (*text[:place], OTHER)
    return tuple(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.serve:
        sampled, _ = WAYS[settings.serve]
        settings.to.write_text(json.dumps(serve(sampled, settings.texts, settings.length)))
        return

    import tempfile

    import numpy as np

    from otlp.auditing.gtest import g_test

    cells = law()
    print(f"L = {settings.length}, {settings.texts:,} texts of {PLACES} tokens")
    print("| way | tokens a round | G | p | |\n|---|---|---|---|---|")
    for name, (_, environment) in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "found.json"
            command = [sys.executable, __file__, "--serve", name, "--to", str(file)]
            command += ["--texts", str(settings.texts), "--length", str(settings.length)]
            done = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, timeout=3600
            )
            if done.returncode:
                print(f"| {name} | failed: {done.stderr.decode()[-300:]!r} | | | |")
                continue
            found = json.loads(file.read_text())
        seen = Counter(cell_of(text, cells) for text in found["outputs"])
        counts = np.array([seen[cell] for cell in cells])
        test = g_test(counts, np.array([*cells.values()]), RATE)
        verdict = "rejected" if test.rejected else "not rejected"
        print(
            f"| {name} | {found['length']:.2f} | {test.statistic:,.0f} on {test.degrees} "
            f"| {test.p_value:.2g} | {verdict} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
