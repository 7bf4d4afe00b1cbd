"""``otlp lab audit-engine``: whether an engine's verifier is lossless, its q that of its drafts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from otlp.auditing import AuditSettings
from otlp.cli import options
from otlp.cli.judging import judge, judging_options, record, tell
from otlp_lab.engines import ENGINES
from otlp_lab.engines.random_models import audit_engine

LONGEST = 8
"""Tokens of a path that is audited."""


@click.command(
    epilog="""\b
Examples:
  otlp lab audit-engine hugging-face
  otlp lab audit-engine hugging-face --length 3 --vocab-size 4
  otlp lab audit-engine hugging-face-processors   texts with each logits processor: minutes
  otlp lab audit-engine sglang-chain --samples 2000
"""
)
@click.argument("engine", type=click.Choice(sorted(ENGINES)))
@options.length_option(2)
@options.vocab_size_option(3)
@judging_options
@options.seed_option()
@options.time_limit_option(300.0)
@options.json_option("Write the report to a file.")
def command(
    engine: str,
    length: int,
    vocab_size: int,
    seed: int,
    time_limit: float,
    json_path: Path | None,
    **judged: Any,
) -> None:
    """Audit the verifier of ENGINE, where it is installed, and the drafts that it makes.

    The engine's own function verifies paths of random models; what it is told of its drafts is
    tested, too; with -processors at the end of the name, logits processors are on. Exit status as
    of otlp audit.
    """
    if length > LONGEST:
        raise click.UsageError(
            f"--length {length}: paths of at most {LONGEST} tokens can be audited"
        )

    report, beside = judge(
        lambda progress: audit_engine(
            ENGINES[engine],
            length,
            vocab_size,
            seed,
            settings=AuditSettings(**judged),
            progress=progress,
        ),
        time_limit,
    )
    content: dict[str, Any] = dict.fromkeys(("capture", "row", "scheme", "n"))
    content |= {"audited": engine, "report": record(report)}
    for one in beside:
        content.setdefault(one.field, []).append(asdict(one))
    tell(report, content, json_path, checked=beside)
