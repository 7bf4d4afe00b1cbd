"""``otlp cascade``: quality-cost curves of speculative cascades on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from otlp.cli import options
from otlp.cli.options import ListOf
from otlp.cli.output import console, note, progress, show, table, write_figure, write_result
from otlp.cli.prompt_files import passages
from otlp.cli.prompts import Models, model_options
from otlp.decode.models.model import Sampling
from otlp.studies.cascade_curve import METHODS, Point, curve
from otlp.studies.cascade_observed import observe
from otlp.studies.cascade_summary import Summary, summaries
from otlp.studies.estimate import Estimate
from otlp.studies.figures import draw_cascades

DEFAULT = (
    "sequential-chow,oracle-diff,lossy,lossy-beta-1,bild-fallback-0.5,bild,"
    "chow,diff,opt,token-v1,token-v2,token-v3"
)
RESPONSES = 64
"""Number of draft responses sampled per position to estimate the deferral rate."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp cascade                                  twelve cascades on the default models
  otlp cascade --cascades opt,token-v3 --threshold 0.1,0.3,0.5 --figure curve.svg
  otlp cascade --cascades chow-log,diff-log,opt-log --json curve.json
  otlp cascade --cascades sequence-chow,bild-fallback-0.9 --draft-cost 0.04
  otlp cascade --temperature 0                  greedy decoding
"""
)
@model_options(limit=10)
@click.option(
    "--cascades",
    type=ListOf(click.Choice(list(METHODS))),
    default=DEFAULT,
    help="Cascades, comma-separated.",
)
@click.option(
    "--threshold",
    type=ListOf(float),
    show_default="a grid for each cascade",
    help="Thresholds alpha, comma-separated.",
)
@options.draft_cost_option(0.1)
@options.length_option(5)
@options.temperature_option()
@options.seed_option()
@options.json_option("Write the curves to a file.")
@options.figure_option("Plot the curves.")
def command(
    models: Models,
    cascades: tuple[str, ...],
    threshold: tuple[float, ...] | None,
    draft_cost: float,
    length: int,
    temperature: float,
    seed: int,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    """Measure quality and cost of cascades at each threshold.

    Quality: log-likelihood and mean probability of held-out text under the distribution of the
    cascade.
    Cost: target calls per token. Speculative cascades (lossy, bild, chow ... token-v3) draft L
    tokens. sequential-... calls the target for each token that the rule defers to the target.
    oracle-... does the same with a rule that reads the target's distribution, and the calls for
    this rule are not counted. sequence-... defers whole responses of L tokens. bild-fallback-... is
    the published BiLD algorithm. Deferred: fraction of tokens
    chosen by the target. Means have half-widths of 95% intervals over the texts.

    The second table has two results per cascade. The speed-up over the target is the largest among
    thresholds whose quality is at least the target's quality. The best quality is the largest among
    thresholds at which the cascade is at least as fast as the target.
    """
    for method in cascades:
        for alpha in threshold or ():
            METHODS[method].sampled(alpha)  # checks the range of alpha
    if temperature == 0.0 and "sequence-chow" in cascades:
        raise click.UsageError("sequence-chow needs a temperature above 0, got 0: leave it out")
    texts = None
    if models.prompts is None:
        texts = [whole for _, whole in passages()][: models.limit]
    pair, encoded = models.load(Sampling(temperature), texts)
    with progress("reading texts", len(encoded)) as step:
        responses = RESPONSES if "sequence-chow" in cascades else 0
        observed = observe(
            *pair, encoded, length=length, seed=seed, responses=responses, progress=step
        )
    points: list[Point] = []
    with progress("cascades", len(cascades)) as step:
        for method in cascades:
            points += curve(observed, method, threshold)
            step(method)
    second = summaries(points, draft_cost)
    title = (
        f"{models.target} / {models.draft}, {observed.tokens.size} held-out tokens, "
        f"{len(observed.drafts)} drafts of {length}"
    )
    content = {
        **models.record(),
        "temperature": temperature,
        "draft_cost": draft_cost,
        "length": length,
        "seed": seed,
        "text_tokens": observed.tokens.size,
        "drafts": len(observed.drafts),
        "points": [point.record() for point in points],
        "summary": [asdict(row) for row in second],
    }
    write_result(json_path, "cascade", content)
    write_figure(figure_path, draw_cascades, points, title)
    console.print(f"{title}\n")
    show(_table(points))
    console.print()
    show(_summary(second, draft_cost))
    note("\ngain: difference from the target; ±: half of a 95% interval over the texts")


def _table(points: Sequence[Point]) -> Table:
    heads = ("alpha", "log-lik.", "gain", "prob.", "gain", "calls per\ntoken", "defer")
    made = table("cascade", *heads)
    for point in points:
        made.add_row(
            point.method,
            f"{point.alpha:g}"
            if not 0.0 < 1.0 - point.alpha < 1e-4
            else f"1-{1 - point.alpha:.0e}",
            _mean(point.log_likelihood),
            "-" if point.log_likelihood_gain is None else point.log_likelihood_gain.show(3),
            _mean(point.accuracy),
            "-" if point.accuracy_gain is None else point.accuracy_gain.show(3),
            point.calls.show(3),
            _mean(point.deferral),
        )
    return made


def _mean(found: Estimate | None) -> str:
    return "-" if found is None else f"{found.mean:.3f}"


def _summary(rows: Sequence[Summary], draft_cost: float) -> Table:
    made = table(
        f"draft call cost {draft_cost:g}",
        "speed-up\n(prob.)", "best\nprob.", "speed-up\n(log-lik.)", "best\nlog-lik.",
    )  # fmt: skip
    for accuracy, likelihood in zip(rows[::2], rows[1::2], strict=True):
        cells = []
        for row in (accuracy, likelihood):
            cells.append("-" if row.speed_up is None else f"{row.speed_up:.2f}x")
            cells.append("-" if row.best is None else f"{row.best:.3f}")
        made.add_row(accuracy.method, *cells)
    return made
