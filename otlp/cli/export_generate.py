"""``otlp export-generate``: the folder that ``generate`` of transformers runs."""

from __future__ import annotations

from pathlib import Path

import click

from otlp.cli.options import json_option
from otlp.cli.output import facts, write_result
from otlp.decode.generate_folder import write_generate_folder


@click.command(
    epilog="""\b
Examples:
  otlp export-generate drafted
  model.generate(**inputs, custom_generate="drafted", trust_remote_code=True,
                 draft_model=small_model, tokenizer=tokenizer, stop_strings=["END"])
"""
)
@click.argument("folder", type=click.Path(file_okay=False))
@json_option("Write what was written where.")
def command(folder: str, json_path: Path | None) -> None:
    """Write a folder for custom_generate of transformers: speculative decoding by name."""
    file = write_generate_folder(folder)
    call = f'generate(..., custom_generate="{folder}", trust_remote_code=True, draft_model=...)'
    write_result(json_path, "export-generate", {"folder": folder, "file": str(file)})
    facts(str(file), {"use": call})
