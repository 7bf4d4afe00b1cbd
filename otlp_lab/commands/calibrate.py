"""``otlp lab calibrate``: calibrate the acceptance of candidates under shared noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.options import ListOf
from otlp.cli.output import console, progress, show, table, write_whole
from otlp.cli.rows import ChosenRows
from otlp.distribution import FloatArray
from otlp_lab.calibrating import concatenate, race


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab calibrate                                the built-in capture
  otlp capture mine.safetensors && otlp lab calibrate mine.safetensors --json mine.json
  otlp decode --algorithms equality --calibration mine.json
"""
)
@capture_argument
@options.rows_option(100)
@click.option(
    "--temperature", type=ListOf(float), default="0.3,0.6,1", help="Temperature of all models."
)
@click.option("--races", type=click.IntRange(1), default=4, help="Gumbel races per row.")
@options.seed_option()
@options.json_option("Write the calibration to a file.")
def command(
    capture: CaptureFile,
    rows: int,
    temperature: tuple[float, ...],
    races: int,
    seed: int,
    json_path: Path | None,
) -> None:
    """Fit the calibration of a pair of models on rows of a capture.

    Draft and target run Gumbel races with the same noise.  The candidates are the
    best tokens of the draft's race.  The probability that the target draws a candidate is modelled
    as (1 - u) softmax((log q + G) / sigma), with Gumbel noise G.  sigma T, with the temperature T,
    is a constant of the pair, fitted by maximum likelihood.  u is the probability that the target
    draws none of the candidates.
    """
    chosen = ChosenRows.spread(capture, rows)
    names = chosen.capture.target_model, chosen.capture.draft_model
    made = table("T", "races", "sigma T", "u", "first", "second", "third")
    every = []
    with progress("racing", len(temperature) * len(chosen.numbers)) as step:
        for one in temperature:

            def pairs(one: float = one) -> Iterator[tuple[FloatArray, FloatArray]]:
                for row in chosen.numbers:
                    yield chosen.capture.distributions(row, one)
                    step(f"T = {one:g}")

            found = race(pairs(), one, seed, races)
            every.append(found)
            own = found.calibration()
            ranks = (f"{chance:.3f}" for chance in found.ranks[:3])
            fitted = f"{own.scale:.3f}", f"{own.unknown:.3f}"
            made.add_row(f"{one:g}", str(found.winners.size), *fitted, *ranks)
    calibration = concatenate(every).calibration(*names)
    if json_path:
        content = calibration.to_json().encode()
        write_whole(json_path, lambda path: path.write_bytes(content))
    console.print(f"{names[0]} / {names[1]}, {len(chosen.numbers)} rows\n")
    show(made)
    console.print(f"\nsigma T = {calibration.scale:.3f}, u = {calibration.unknown:.3f}")
