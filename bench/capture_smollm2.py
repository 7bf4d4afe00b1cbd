"""Make the built-in capture: SmolLM2-135M-Instruct and its draft on HumanEval 70 to 99 and chats.

    python bench/capture_smollm2.py                    # otlp/data/capture.safetensors

The target decodes after each prompt, and every fifteenth position is kept, so that passages and
positions have equal weight.  Each row stores the most likely tokens of both models; the commands
report the possible effect of the other tokens.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from otlp.cli.info import command as info
from otlp.cli.options import OutputFile
from otlp.cli.output import progress
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.data.captures import save
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.decode.models.model import Sampling
from otlp.studies.capturing import capture

BENCH = Path(__file__).parent
BUILTIN = BENCH.parent / "otlp" / "data" / "capture.safetensors"
WRITTEN, APART = 46, 15
"""Tokens per text, and distance of the kept positions; the two are coprime."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--out", type=OutputFile(), default=BUILTIN)
@click.option("--problems", default="humaneval:70-99")
@click.option("--chats", type=click.Path(), default=BENCH / "data" / "chats.jsonl")
@click.option("--kept", default=1500, help="Number of tokens stored per row.")
@click.option("--seed", default=7)
@click.pass_context
def main(
    context: click.Context, out: Path, problems: str, chats: Path, kept: int, seed: int
) -> None:
    """Decode from the target, and keep every fifteenth position."""
    pair: tuple[Any, Any] = open_pair(SMOLLM2_DRAFT, SMOLLM2, "cpu", "bfloat16", Sampling())
    asked = [*read_prompts(problems, None), *read_prompts(str(chats), None)]
    prompts = encode_prompts(pair[1], asked)
    with TemporaryDirectory() as folder, progress("capturing", len(prompts)) as step:
        whole = capture(
            *pair, prompts, Path(folder) / "whole.safetensors", steps=WRITTEN, seed=seed,
            top_logprobs=kept, progress=step,
        )  # fmt: skip
        note = f"Every {APART}th place of {len(prompts)} texts; made by bench/capture_smollm2.py."
        save(replace(whole[::APART], note=note), out)
    context.invoke(info, capture=str(out))


if __name__ == "__main__":
    main()
