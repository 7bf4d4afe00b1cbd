"""``otlp cascade``: the quality-cost curve of speculative cascades on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from otlp.cli import options
from otlp.cli.options import ListOf
from otlp.cli.output import console, note, progress, show, table, write_result, write_whole
from otlp.cli.prompt_files import passages
from otlp.cli.prompts import Models, model_options
from otlp.decode.models.model import Sampling
from otlp.studies.cascade_curve import METHODS, Point, curve, observe
from otlp.studies.figures import draw_cascades

DEFAULT = "lossy,bild,chow,diff,opt,token-v1,token-v2,token-v3"


@click.command(
    epilog="""\b
Examples:
  otlp cascade                                  eight cascades on the trained pair
  otlp cascade --cascades opt,token-v3 --threshold 0.1,0.3,0.5 --figure curve.svg
  otlp cascade --cascades chow-log,diff-log,opt-log --json curve.json
"""
)
@model_options(limit=10)
@click.option(
    "--cascades",
    type=ListOf(click.Choice(list(METHODS))),
    default=DEFAULT,
    help="Cascades by their names.",
)
@click.option(
    "--threshold",
    type=ListOf(float),
    show_default="a grid for each cascade",
    help="Thresholds alpha.",
)
@options.length_option(5)
@options.temperature_option()
@options.seed_option()
@options.json_option("Write the curves to a file.")
@options.figure_option("Draw the curves.")
def command(
    models: Models,
    cascades: tuple[str, ...],
    threshold: tuple[float, ...] | None,
    length: int,
    temperature: float,
    seed: int,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    """Measure what speculative cascades give up and save, over their threshold.

    Quality: log-likelihood and mean probability of held-out text under the cascade's law. Cost:
    target calls a token of speculative sampling towards that law, L tokens drafted. Deferred: the
    share of places that follow the target, which is what a sequential cascade (chow) or an oracle
    (bild, diff, opt) would call it for. Means with the half widths of 95% intervals over the texts.
    """
    for method in cascades:
        for alpha in threshold or ():
            METHODS[method](alpha)  # refuses a threshold that is none
    texts = None
    if models.prompt_file is None:
        texts = [whole for _, whole in passages()][: models.limit]
    pair, encoded = models.ready(Sampling(temperature), texts)
    with progress("reading texts", len(encoded)) as step:
        observed = observe(*pair, encoded, length=length, seed=seed, progress=step)
    points: list[Point] = []
    with progress("cascades", len(cascades)) as step:
        for method in cascades:
            points += curve(observed, method, threshold)
            step(method)
    title = (
        f"{models.target} / {models.draft}, {observed.tokens.size} held-out tokens, "
        f"{len(observed.drafts)} drafts of {length}"
    )
    content = {
        **models.said(),
        "temperature": temperature,
        "length": length,
        "seed": seed,
        "text_tokens": observed.tokens.size,
        "drafts": len(observed.drafts),
        "points": [point.record() for point in points],
    }
    write_result(json_path, "cascade", content)
    if figure_path:
        write_whole(figure_path, lambda path: draw_cascades(path, points, title))
    console.print(f"{title}\n")
    show(_table(points))
    note("\ngain: against the target alone; ±: half of a 95% interval over the texts")


def _table(points: Sequence[Point]) -> Table:
    heads = ("alpha", "log-lik.", "gain", "prob.", "gain", "calls a\ntoken", "defer")
    made = table("cascade", *heads)
    for point in points:
        made.add_row(
            point.method,
            f"{point.alpha:g}",
            f"{point.log_likelihood.mean:.3f}",
            point.log_likelihood_gain.show(3),
            f"{point.accuracy.mean:.3f}",
            point.accuracy_gain.show(3),
            point.calls.show(3),
            "-" if point.deferral is None else f"{point.deferral.mean:.3f}",
        )
    return made
