"""``otlp capture``: record the logits of two models while decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.options import OutputFile
from otlp.cli.output import console, progress, warn, write_result
from otlp.cli.prompts import Models, model_options
from otlp.data.sampling_cuts import SAMPLING
from otlp.decode.models.loading import COPYING, is_network
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError
from otlp.studies.capturing import capture, check_output, parts_folder


@options.grouped_command(
    epilog="""\b
Examples:
  otlp capture mine.safetensors                     the default models, ten prompts, 32 tokens each
  otlp capture mine.safetensors --target my/model --draft my/small-model --device cuda
  otlp capture mine.safetensors --prompts prompts.txt --tokens 100 --temperature 0.6
  otlp capture mine.safetensors --top-logprobs 50   only the 50 most likely tokens
  otlp bench mine.safetensors                       solve the captured rows
"""
)
@click.argument("output", type=OutputFile(lambda: (".safetensors",)))
@model_options(limit=None)
@options.tokens_option(32)
@options.temperature_option()
@options.sampling_options
@options.seed_option()
@options.top_logprobs_option
@options.json_option("Write a summary of the capture to a file.")
def command(
    output: Path,
    models: Models,
    top_logprobs: int | None,
    json_path: Path | None,
    **settings: Any,
) -> None:
    """Let the target continue prompts, and record the logits of both models at every step.

    OUTPUT is a capture that all other commands read. Until OUTPUT is complete, finished passages
    are kept in OUTPUT.parts, one capture per passage; run the same command again to resume. Logits
    are stored at temperature 1, even if the text has another temperature.

    With --top-logprobs, the optimum computed from OUTPUT can be lower than the optimum of the
    models. Commands that read OUTPUT print the maximum difference.
    """
    check_output(output)
    if not is_network(models.draft.removeprefix(COPYING)):
        raise InvalidInputError(
            f"--draft must be a network, or a network after {COPYING}, got {models.draft}: "
            "a capture stores logits of networks"
        )
    cuts = (settings[name] for name in ("temperature", *SAMPLING))
    sampling = Sampling(*cuts)
    (draft, target), prompts = models.load(sampling)
    try:
        with progress("capturing", len(prompts)) as step:
            made = capture(
                draft,
                target,
                prompts,
                output,
                steps=settings["tokens"],
                seed=settings["seed"],
                top_logprobs=top_logprobs,
                progress=step,
            )
    except KeyboardInterrupt:
        warn(f"finished passages are in {parts_folder(output)}; run the same command to resume")
        raise
    found = {
        "path": str(output),
        "row_count": len(made),
        "prompt_count": len(prompts),
        "vocab_size": made.model_vocab_size,
    }
    write_result(json_path, "capture", {**models.record(), **settings, **found})
    size = f"V = {made.model_vocab_size:,}"
    console.print(f"{output}: {len(made)} rows from {len(prompts)} prompts, {size}")
