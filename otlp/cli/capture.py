"""``otlp capture``: write the logits that two models meet while decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.options import OutputFile
from otlp.cli.output import console, progress, warn, write_result
from otlp.cli.prompts import Models, model_options
from otlp.data.sampling_cuts import SAMPLING
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import is_network
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError
from otlp.studies.capturing import capture, check_output, parts_folder


@click.command(
    epilog="""\b
Examples:
  otlp capture mine.safetensors                     the trained pair, ten prompts, 32 tokens each
  otlp capture mine.safetensors --target my/model --draft my/small-model --device cuda
  otlp capture mine.safetensors --prompts prompts.txt --tokens 100 --temperature 0.6
  otlp capture mine.safetensors --top-logprobs 50   the likeliest 50 tokens only
  otlp bench mine.safetensors                       solve what was captured
"""
)
@click.argument("output", type=OutputFile())
@model_options(limit=None)
@options.tokens_option(32)
@options.temperature_option()
@options.sampling_options
@options.seed_option()
@click.option("--top-logprobs", type=click.IntRange(1), help="Keep the likeliest tokens only.")
@options.json_option("Write what was captured to a file.")
def command(
    output: Path,
    models: Models,
    top_logprobs: int | None,
    json_path: Path | None,
    **asked: Any,
) -> None:
    """Let the target continue prompts, and write the logits of both models at every step.

    OUTPUT is a capture that all other commands read. Until it is complete, the finished passages
    lie in OUTPUT.parts, each a capture; the same command again goes on where it stopped. The
    logits are those at temperature 1, whatever the text was written with.

    With --top-logprobs, acceptances are bounded where tokens are missing: the commands say by how
    much.
    """
    check_output(output)
    if not is_network(models.draft):
        raise InvalidInputError(
            f"--draft {models.draft} is no network: a capture holds the logits of two networks"
        )
    cuts = (asked[name] for name in ("temperature", *SAMPLING))
    sampling = Sampling(*cuts)
    (draft, target), prompts = models.ready(sampling)
    assert isinstance(draft, HuggingFaceModel)
    try:
        with progress("capturing", len(prompts)) as step:
            made = capture(
                draft,
                target,
                prompts,
                output,
                steps=asked["tokens"],
                seed=asked["seed"],
                top_logprobs=top_logprobs,
                progress=step,
            )
    except KeyboardInterrupt:
        warn(f"the finished passages are in {parts_folder(output)}; the same command goes on")
        raise
    found = {
        "path": str(output),
        "row_count": len(made),
        "prompt_count": len(prompts),
        "vocab_size": made.model_vocab_size,
    }
    write_result(json_path, "capture", {**models.said(), **asked, **found})
    size = f"V = {made.model_vocab_size:,}"
    console.print(f"{output}: {len(made)} rows of {len(prompts)} prompts, {size}")
