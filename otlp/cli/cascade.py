"""``otlp cascade``: the quality-cost curve of speculative cascades on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from otlp.cli.options import ListOf, figure_option, json_option
from otlp.cli.output import console, progress, table, write_json, write_whole
from otlp.cli.prompts import Models, encode_prompts, model_options, passages
from otlp.decode.models.model import Sampling
from otlp.studies.cascade_curve import METHODS, Point, curve, observe
from otlp.studies.figures import draw_cascades

DEFAULT = "lossy,bild,chow,diff,opt,token-v1,token-v2,token-v3"


@click.command(
    epilog="""\b
Examples:
  otlp cascade                                  eight cascades on the trained pair
  otlp cascade --cascade opt,token-v3 --threshold 0.1,0.3,0.5 --figure curve.png
  otlp cascade --cascade chow-log,diff-log,opt-log --json curve.json
"""
)
@model_options(limit=10)
@click.option("--cascade", "methods", type=ListOf(click.Choice(list(METHODS))), default=DEFAULT)
@click.option(
    "--threshold",
    "alphas",
    type=ListOf(float),
    help="A list such as 0.1,0.3. [default: a grid for each cascade]",
)
@click.option("--length", type=click.IntRange(1), default=5, help="L.")
@click.option("--temperature", type=float, default=1.0)
@click.option("--seed", type=click.IntRange(0), default=0)
@json_option("Write the curves to a file.")
@figure_option("Draw the curves.")
def command(
    models: Models,
    methods: tuple[str, ...],
    alphas: tuple[float, ...] | None,
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
    for method in methods:
        for alpha in alphas or ():
            METHODS[method](alpha)  # refuses a threshold that is none
    if models.prompt_file is None:
        texts = [whole for _, whole in passages()][: models.limit]
    else:
        texts = models.texts()
    pair = models.open(Sampling(temperature))
    observed = observe(*pair, encode_prompts(pair[1], texts), length=length, seed=seed)
    points: list[Point] = []
    with progress("cascades", len(methods)) as step:
        for method in methods:
            points += curve(observed, method, alphas)
            step(method)
    title = (
        f"{models.target} / {models.draft}, {observed.tokens.size} held-out tokens, "
        f"{len(observed.drafts)} drafts of {length}"
    )
    if json_path:
        write_json(json_path, {"title": title, "points": [point.record() for point in points]})
    if figure_path:
        write_whole(figure_path, lambda path: draw_cascades(path, points, title))
    console.print(_table(points, title))


def _table(points: Sequence[Point], title: str) -> Table:
    caption = "gain: against the target alone; ± half of a 95% interval over the texts"
    heads = ("alpha", "log-lik.", "gain", "prob.", "gain", "calls a token", "defer")
    left = {"title_justify": "left", "caption_justify": "left", "padding": (0, 1, 0, 0)}
    made = table("cascade", *heads, title=title, caption=caption, box=None, **left)
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
