"""What the commands that audit share: the work in a child process, the verdict and its status."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from rich.text import Text

from otlp.auditing import AuditReport
from otlp.cli import options
from otlp.cli.child import ChildError, run_in_child
from otlp.cli.ending import AnswerIsNo
from otlp.cli.output import console, fail, progress, write_result

Found = TypeVar("Found")


false_alarm_option = click.option(
    "--false-alarm-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=1e-6,
    help="How often a sampled audit may find fault with what has none.",
)

JUDGING = "samples", "false_alarm_rate", "tolerance", "max_paths"
"""The fields of `otlp.auditing.AuditSettings` that `judging_options` adds."""

judging_options = options.several(
    click.option(
        "--samples", type=click.IntRange(1000), default=100_000, help="Samples where it is sampled."
    ),
    false_alarm_option,
    options.tolerance_option(1e-6),
    click.option(
        "--max-paths",
        type=click.IntRange(0),
        default=100_000,
        help="Sample if the exact law needs more paths; 0 samples always.",
    ),
)


class Named(Protocol):
    """One of several verdicts."""

    @property
    def name(self) -> str:
        """As it stands on the first line."""


class Report(Protocol):
    """What was checked, in one word and as a string."""

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""

    @property
    def verdict(self) -> Named:
        """In one word."""


def judge(work: Callable[[Callable[..., None]], Found], time_limit: float) -> Found:
    """Do the work in a child process, with a progress bar; exit status 2 without a report."""
    with ExitStack() as stack:
        # begun by the first report: the thread of the bar should not be forked
        bar = cache(lambda: stack.enter_context(progress("auditing", 100)))
        try:
            return run_in_child(work, time_limit, lambda label, done: bar()(label, 100 * done))
        except ChildError as error:
            reason = str(error)
        except KeyboardInterrupt:
            reason = "interrupted"
    fail(f"not judged: {reason}")


def in_one_line(report: AuditReport) -> str:
    """The verdict on a configuration, for a log: what, how far off, and how much it accepts."""
    low, high = report.interval
    several = math.isnan(report.acceptance)
    kept = (
        f"{report.tokens:.4g} tokens a round" if several else f"acceptance {report.acceptance:.4g}"
    )
    stated = "" if math.isnan(report.stated) else f" of {report.stated:.4g} stated"
    return (
        f"{report.verdict.name} {report.rule} on {report.drafted}: total variation {low:.2g} to "
        f"{high:.2g}, {kept}{stated}"
    )


def record(report: AuditReport) -> dict[str, object]:
    """The report for JSON: the texts that are furthest off in place of its laws."""
    found = asdict(report)
    del found["target"], found["output"]
    return {**found, "worst_texts": report.worst_texts()}


def tell(
    report: Report,
    content: Mapping[str, Any],
    json_path: Path | None,
    more: str = "",
    checked: Sequence[Report] = (),
    said: Callable[[Any], str] = str,
) -> None:
    """Print and write a report, more lines, what else was checked; status 1 if one is wrong.

    The first line has the first verdict that is wrong, and the report begins with its own.
    `content` has the fields of the JSON, "report" among them.
    """
    worst = next((one for one in (report, *checked) if not one.passed), report)
    write_result(
        json_path, "audit", {**content, "verdict": worst.verdict.name, "passed": worst.passed}
    )
    words = said(report)
    if worst is not report:
        words = f"{worst.verdict.name}: {str(worst).splitlines()[0]} The verifier alone:\n{words}"
    text = Text(words)
    text.stylize("bold green" if worst.passed else "bold red", 0, len(worst.verdict.name))
    console.print(text)
    if more:
        console.print(more)
    for each in checked:
        console.print(str(each), style=None if each.passed else "bold red")
    if not worst.passed:
        raise AnswerIsNo
