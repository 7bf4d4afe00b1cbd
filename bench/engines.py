"""Audit of the verifiers of all engines: the table of docs/engines.md.

    python bench/engines.py
    python bench/engines.py --length 3 --samples 20000 --time-limit 5000

An engine that is not installed is listed as such.  Kernels are sampled, Python functions are
enumerated.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import click

from otlp.auditing import AuditSettings
from otlp.cli.child import ChildError, run_in_child
from otlp.errors import EngineNotFoundError
from otlp_lab.engines import ENGINES
from otlp_lab.engines.random_models import audit_engine


def judge(name: str, samples: int, time_limit: float, **models: int) -> tuple[str, ...]:
    """Return version, verdict, result and seconds of one engine."""
    engine = ENGINES[name]
    try:
        version = f"{engine.package} {engine.version}"
    except EngineNotFoundError:
        return engine.package, "not installed", "", ""

    def timed(progress: Any) -> Any:
        begin = process_time()
        report, sample_tests = audit_engine(
            engine,
            progress=progress,
            settings=AuditSettings(samples, max_paths=100_000 if engine.batch is None else 0),
            **models,
        )
        every: list[Any] = [report, *sample_tests]
        worst = next((one for one in every if not one.passed), report)
        return report, worst.verdict.name, process_time() - begin

    try:
        report, verdict, seconds = run_in_child(timed, time_limit, lambda *_: None)
    except ChildError as error:
        return version, f"not audited: {error}", "", ""
    if report.test is None:
        found = f"total variation {report.total_variation:.0e} over {report.size:,} paths"
    else:
        found = (
            f"{report.size:,} rounds, p = {report.test.p_value:.2g}; "
            f"{report.test.detectable:.2g} or more"
        )
    return version, verdict.lower().replace("_", " "), found, f"{seconds:.0f}"


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--length", default=2, help="Number of drafted tokens per path.")
@click.option("--vocab-size", default=3, help="Vocabulary size of the models.")
@click.option("--samples", default=2000, help="Number of sampled rounds per kernel.")
@click.option("--seed", default=0, help="Random seed of the models and the rounds.")
@click.option("--time-limit", default=1000.0, help="Seconds per engine.")
def main(length: int, vocab_size: int, samples: int, seed: int, time_limit: float) -> None:
    click.echo("| engine | version | verdict | found, or would have been found | seconds |")
    click.echo("|---|---|---|---|---|")
    for name in ENGINES:
        row = judge(name, samples, time_limit, length=length, vocab_size=vocab_size, seed=seed)
        click.echo(f"| `{name}` | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
