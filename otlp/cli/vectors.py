"""``otlp vectors``: test vectors for verifiers in any language."""

from __future__ import annotations

from pathlib import Path

import click

from otlp.cli import options
from otlp.cli.output import note, show, table, write_result
from otlp.testing.vectors import make_vectors


@click.command(
    epilog="""\b
Examples:
  otlp vectors --json vectors.json                 models, laws, answers, mistakes
  otlp vectors --seed 7 --json vectors.json        others
"""
)
@options.seed_option()
@options.json_option("Write the vectors to a file.")
def command(seed: int, json_path: Path | None) -> None:
    """Write test vectors: cases of seven rules, right answers, and mistakes that must fail.

    Each case has its models, what the uniform numbers are used for, the exact law of texts, how
    many drafted tokens are accepted in the mean, and rounds with their answers, as lines of otlp
    audit --command.  A verifier that takes our numbers must give the same tokens; each mistake has
    a round that it answers otherwise.
    """
    found = make_vectors(seed)
    write_result(json_path, "vectors", found)
    made = table("rule", "shape", "accepted", "mistakes", "least total variation")
    for case in found["cases"]:
        apart = [m["total_variation"] for m in case["mutants"] if m["total_variation"] is not None]
        made.add_row(
            case["rule"],
            " x ".join(map(str, case["examples"][0]["shape"])),
            "-" if case["accepted"] is None else f"{case['accepted']:.4f}",
            str(len(case["mutants"])),
            f"{min(apart):.3f}" if apart else "-",
        )
    show(made)
    if json_path is None:
        note("nothing was written: add --json FILE")
