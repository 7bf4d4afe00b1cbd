"""``otlp lab audit-engine``: audit the verifier of an engine, and its draft probabilities."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from otlp.auditing import AuditSettings
from otlp.cli import options
from otlp.cli.judging import judge, judging_options, print_report, record
from otlp_lab.engines import ENGINES
from otlp_lab.engines.random_models import audit_engine

MAX_LENGTH = 8
"""Maximum number of tokens per audited path."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab audit-engine hugging-face
  otlp lab audit-engine hugging-face --length 3 --vocab-size 4
  otlp lab audit-engine hugging-face-processors   with each logits processor, takes minutes
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
    """Audit the verifier of an installed ENGINE, and its drafts.

    The engine's own function verifies paths of random models. The draft probabilities passed to the
    function are also tested against the drafts. Names ending in -processors enable logits
    processors. The exit status is that of otlp audit.
    """
    if length > MAX_LENGTH:
        raise click.UsageError(
            f"--length must be at most {MAX_LENGTH}, got {length}: give a shorter path"
        )

    report, others = judge(
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
    for one in others:
        content.setdefault(one.field, []).append(asdict(one))
    print_report(report, content, json_path, checked=others)
