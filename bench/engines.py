"""The verifiers of all engines, audited in one run: the table of docs/engines.md.

    python bench/engines.py
    python bench/engines.py --length 3 --samples 20000 --time-limit 5000

An engine that is not installed stands in the table by its name.  Kernels are sampled, functions in
Python are enumerated.
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
    """Version, verdict, what was found and seconds of one engine."""
    engine = ENGINES[name]
    try:
        version = f"{engine.package} {engine.version}"
    except EngineNotFoundError:
        return engine.package, "not installed", "", ""

    def timed(progress: Any) -> Any:
        begin = process_time()
        report, beside = audit_engine(
            engine,
            progress=progress,
            settings=AuditSettings(samples, max_paths=100_000 if engine.batch is None else 0),
            **models,
        )
        every: list[Any] = [report, *beside]
        worst = next((one for one in every if not one.passed), report)
        return report, worst.verdict.name, process_time() - begin

    try:
        report, verdict, seconds = run_in_child(timed, time_limit, lambda *_: None)
    except ChildError as error:
        return version, f"not judged: {error}", "", ""
    if report.test is None:
        found = f"total variation {report.total_variation:.0e} over {report.size:,} paths"
    else:
        found = (
            f"{report.size:,} rounds, p = {report.test.p_value:.2g}; "
            f"{report.test.detectable:.2g} or more"
        )
    return version, verdict.lower().replace("_", " "), found, f"{seconds:.0f}"


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--length", default=2, help="Drafted tokens of a path.")
@click.option("--vocab-size", default=3, help="Tokens of the models.")
@click.option("--samples", default=2000, help="Rounds of a kernel.")
@click.option("--seed", default=0, help="Of the models and of the rounds.")
@click.option("--time-limit", default=1000.0, help="Seconds of an engine.")
def main(length: int, vocab_size: int, samples: int, seed: int, time_limit: float) -> None:
    click.echo("| engine | version | verdict | found, or would have been found | seconds |")
    click.echo("|---|---|---|---|---|")
    for name in ENGINES:
        row = judge(name, samples, time_limit, length=length, vocab_size=vocab_size, seed=seed)
        click.echo(f"| `{name}` | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
