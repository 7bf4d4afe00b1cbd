"""``otlp cascade``: the quality-cost curve of speculative cascades on held-out text."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.progress import track
from rich.table import Table

from otlp.cli.options import names
from otlp.cli.output import console, write_json, write_whole
from otlp.cli.prompts import encode_prompts, model_options, numbers, open_pair, read_prompts
from otlp.data.captures import builtin
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError
from otlp.studies.cascade_curve import Point, curve, observe
from otlp.studies.decode_figures import draw_cascades

__all__ = ["command"]

DEFAULT = "lossy,bild,chow,diff,opt,token-v1,token-v2,token-v3"


def _numbers(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, ...] | None:
    return None if value is None else numbers(ctx, param, value)


@click.command(
    epilog="""\b
Examples:
  otlp cascade                                  eight cascades on the trained pair
  otlp cascade --cascade opt,token-v3 --threshold 0.1,0.3,0.5 --figure curve.png
  otlp cascade --cascade chow-log,diff-log,opt-log --json curve.json
"""
)
@model_options
@click.option("--cascade", "methods", callback=names, default=DEFAULT, show_default=True)
@click.option(
    "--threshold",
    "alphas",
    callback=_numbers,
    help="A list such as 0.1,0.3. [default: a grid for each cascade]",
)
@click.option("--length", type=click.IntRange(1), default=5, show_default=True, help="L.")
@click.option("--temperature", type=float, default=1.0, show_default=True)
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Texts.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "json_path", type=click.Path(), help="Write the curves to a file.")
@click.option("--figure", "figure_path", type=click.Path(), help="Draw the curves.")
def command(
    target: str,
    draft: str,
    prompt_file: str | None,
    device: str,
    dtype: str,
    methods: tuple[str, ...],
    alphas: tuple[float, ...] | None,
    length: int,
    temperature: float,
    limit: int,
    seed: int,
    json_path: str | None,
    figure_path: str | None,
) -> None:
    """Measure what speculative cascades give up and save, over their threshold.

    Quality: log-likelihood and mean probability of held-out text under the cascade's law. Cost:
    target calls a token of speculative sampling towards that law, L tokens drafted. Deferred: the
    share of places that follow the target, which is what a sequential cascade (chow) or an oracle
    (bild, diff, opt) would call it for. Means with the half widths of 95% intervals over the texts.
    """
    if not methods:
        raise InvalidInputError("give at least one cascade")
    pair = open_pair(draft, target, device, dtype, Sampling(temperature))
    texts = _passages()[:limit] if prompt_file is None else read_prompts(prompt_file, limit)
    observed = observe(*pair, encode_prompts(pair[1], texts), length=length, seed=seed)
    points: list[Point] = []
    for method in track(
        methods, "cascades", console=console, transient=True, disable=not console.is_terminal
    ):
        points += curve(observed, method, alphas)
    title = (
        f"{target} / {draft}, {observed.tokens.size} held-out tokens, "
        f"{len(observed.drafts)} drafts of {length}"
    )
    console.print(_table(points, title))
    if json_path:
        write_json(json_path, {"title": title, "points": [point.record() for point in points]})
    if figure_path:
        write_whole(figure_path, lambda path: draw_cascades(path, points, title))


def _passages() -> list[str]:
    """Whole passages of the built-in capture: the context at the last row of each."""
    capture = builtin()
    last = len(capture) - 1
    return [
        capture.contexts[row]
        for row in range(len(capture))
        if row == last or capture.positions[row + 1] != capture.positions[row] + 1
    ]


def _table(points: Sequence[Point], title: str) -> Table:
    caption = "gain: against the target alone; ± half of a 95% interval over the texts"
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("cascade", no_wrap=True)
    for head in ("alpha", "log-lik.", "gain", "prob.", "gain", "calls a token", "defer"):
        table.add_column(head, justify="right", no_wrap=True)
    for point in points:
        table.add_row(
            point.method,
            f"{point.alpha:g}",
            f"{point.log_likelihood.mean:.3f}",
            point.log_likelihood_gain.show(3),
            f"{point.accuracy.mean:.3f}",
            point.accuracy_gain.show(3),
            point.calls.show(3),
            "-" if point.deferral is None else f"{point.deferral.mean:.3f}",
        )
    return table
