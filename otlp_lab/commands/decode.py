"""``otlp lab decode``: decode with the setting from ``otlp lab tune``."""

from __future__ import annotations

from typing import Any

import click

from otlp.cli import options
from otlp.cli.decode import decode, decoded_options, find_settings
from otlp.cli.output import warn
from otlp.cli.prompts import Models, model_options
from otlp_lab.tuning import Tuned


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab tune && otlp lab decode
  otlp lab decode tuned.json --prompts humaneval:0-9 --tokens 64 --json runs.json
"""
)
@click.argument("setting", type=click.Path(), default="tuned.json")
@model_options(limit=4)
@decoded_options
def command(setting: str, models: Models, **decoded: Any) -> None:
    """Decode with SETTING, a file of otlp lab tune for these models on this device.

    The file contains the algorithm, the shape of the drafts and the sampling. The table has the
    columns of `otlp decode`.
    """
    tuned = Tuned.read(setting)
    tuned.check_models(models.target, models.draft)
    if tuned.measured is None:
        warn(f"the setting in {setting} was not timed: run otlp lab tune to time it")
    shape = max(tuned.paths, 1), max(tuned.length, 1)
    settings, _ = find_settings([tuned.algorithm], shape[:1], shape[1:], tuned.branching)
    pair, prompts = models.load(tuned.sampling)
    tuned.check_loaded(pair[1].model.device, pair[1].model.dtype)
    decoded["draft_temperature"] = tuned.draft_temperature
    decode(pair, prompts, [tuned.sampling], settings, models=models, **decoded)
