"""Options, child process and output shared by the commands that audit."""

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

from otlp.auditing import AuditReport, Verdict
from otlp.cli import options
from otlp.cli.child import ChildError, run_in_child
from otlp.cli.exit_status import CheckFailed
from otlp.cli.output import console, fail, progress, write_result

Found = TypeVar("Found")


false_alarm_option = click.option(
    "--false-alarm-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=1e-6,
    help="Maximum probability that a sampled audit rejects a correct rule or server.",
)

JUDGING = "samples", "false_alarm_rate", "tolerance", "max_paths"
"""The fields of `otlp.auditing.AuditSettings` that `judging_options` adds."""

judging_options = options.several(
    click.option(
        "--samples", type=click.IntRange(1000), default=100_000, help="Number of samples."
    ),
    false_alarm_option,
    options.tolerance_option(1e-6),
    click.option(
        "--max-paths",
        type=click.IntRange(0),
        default=100_000,
        help="Maximum number of enumerated sequences of random draws; an audit that needs more is "
        "sampled. 0: every audit is sampled.",
    ),
)


class Report(Protocol):
    """A report with a verdict; its string is printed."""

    @property
    def passed(self) -> bool:
        """Whether no error was found."""

    @property
    def verdict(self) -> Verdict:
        """The verdict."""


def judge(work: Callable[[Callable[..., None]], Found], time_limit: float) -> Found:
    """Run `work` in a child process with a progress bar; exit status 2 if there is no result."""
    with ExitStack() as stack:
        # Start the bar at the first report: its thread must not exist at the fork.
        bar = cache(lambda: stack.enter_context(progress("auditing", 100)))
        try:
            return run_in_child(work, time_limit, lambda label, done: bar()(label, 100 * done))
        except ChildError as error:
            reason = str(error)
        except KeyboardInterrupt:
            reason = "interrupted"
    fail(f"not judged: {reason}")


def one_line_summary(report: AuditReport) -> str:
    """Format verdict, total variation and acceptance on one line, for logs."""
    low, high = report.interval
    accepted = f"acceptance {report.acceptance:.4g}"
    if math.isnan(report.acceptance):
        accepted = f"{report.tokens:.4g} tokens per round"
    stated = "" if math.isnan(report.stated) else f" of {report.stated:.4g} stated"
    return (
        f"{report.verdict.name} {report.rule} on {report.drafted}: total variation {low:.2g} to "
        f"{high:.2g}, {accepted}{stated}"
    )


def record(report: AuditReport) -> dict[str, object]:
    """Return the report for JSON, with the texts of largest deviation instead of the full laws."""
    found = asdict(report)
    del found["target"], found["output"]
    return {**found, "worst_texts": report.worst_texts()}


def print_report(
    report: Report,
    content: Mapping[str, Any],
    json_path: Path | None,
    words: str = "",
    checked: Sequence[Report] = (),
) -> None:
    """Print and write a report.

    Parameters
    ----------
    report : Report
        The main report.
    content : mapping
        Fields of the JSON, including "report".
    json_path : Path or None
        File to write, if any.
    words : str
        Text of the main report, by default ``str(report)``.
    checked : sequence of Report
        Further reports. The first line shows the first verdict that did not pass.

    Raises
    ------
    CheckFailed
        If a report did not pass; exit status 1.
    """
    worst = next((one for one in (report, *checked) if not one.passed), report)
    write_result(
        json_path, "audit", {**content, "verdict": worst.verdict.name, "passed": worst.passed}
    )
    words = words or str(report)
    if worst is not report:
        words = f"{worst.verdict.name}: {str(worst).splitlines()[0]} The verifier:\n{words}"
    text = Text(words)
    text.stylize("bold green" if worst.passed else "bold red", 0, len(worst.verdict.name))
    console.print(text)
    for each in checked:
        console.print(str(each), style=None if each.passed else "bold red")
    if not worst.passed:
        raise CheckFailed
