"""Ways of decoding inside generate of transformers, on the trained pair: time and tokens a call.

The same prompts, one thread, sampled at temperature 1: plain, assisted generation (as it comes, and
with 4 drafted tokens a round), prompt lookup, and otlp.decode.generate.  Each round of the table
decodes every prompt in every way, in turn; a cell is the median over the rounds.

    python bench/transformers_generate.py [--tokens 64] [--repeat 5] [--prompts 8]
"""

from __future__ import annotations

import argparse
import copy
import os
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers

from otlp.cli.prompt_files import read_prompts
from otlp.decode import generate
from otlp.decode.models.loading import load_pair


def ways(draft: Any) -> dict[str, dict[str, Any]]:
    fixed = copy.deepcopy(draft)
    fixed.generation_config.num_assistant_tokens = 4
    fixed.generation_config.num_assistant_tokens_schedule = "constant"
    fixed.generation_config.assistant_confidence_threshold = 0.0
    ours = {"custom_generate": generate, "draft_model": draft}
    return {
        "plain": {},
        "assisted, as it comes": {"assistant_model": draft},
        "assisted, 4 drafted": {"assistant_model": fixed},
        "prompt lookup, 10 tokens": {"prompt_lookup_num_tokens": 10},
        "otlp, block 1 x 2": {**ours, "paths": 1, "length": 2, "verification": "block"},
        "otlp, block 1 x 4": {**ours, "paths": 1, "length": 4, "verification": "block"},
        "otlp, two-slice 2 x 4": {**ours, "paths": 2, "length": 4},
        "otlp, two-slice 4 x 4": {**ours, "paths": 4, "length": 4},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    draft, target = load_pair(device="cpu")
    texts = read_prompts(None, settings.prompts)
    prompts = [target.tokenizer(p, return_tensors="pt") for p in texts]
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    target.model.register_forward_hook(count)
    options = {
        "do_sample": True,
        "top_k": 0,
        "max_new_tokens": settings.tokens,
        "min_new_tokens": settings.tokens,
        "pad_token_id": 0,
    }
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(-1, settings.repeat):
        for name, way in ways(draft.model).items():
            transformers.set_seed(turn + 1)
            tokens = calls = 0
            begin = process_time()
            for prompt in prompts:
                text = target.model.generate(**prompt, **options, **way)
                tokens += text.shape[1] - prompt["input_ids"].shape[1]
            spent = process_time() - begin
            if turn >= 0:  # the first turn compiles and tries the models
                found.setdefault(name, []).append((1e3 * spent / tokens, tokens / calls))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, one thread")
    print("| way | CPU ms a token | tokens a target call |\n|---|---|---|")
    for name, rows in found.items():
        time, length = (median(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {time:.2f} | {length:.2f} |")


if __name__ == "__main__":
    main()
