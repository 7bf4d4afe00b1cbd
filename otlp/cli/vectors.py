"""``otlp vectors``: write test vectors for verifiers in any language."""

from __future__ import annotations

from pathlib import Path

from otlp.cli import options
from otlp.cli.output import note, show, table, write_result
from otlp.testing.vectors import make_vectors


@options.grouped_command(
    epilog="""\b
Examples:
  otlp vectors --json vectors.json                 models, laws, answers, mutants
  otlp vectors --seed 7 --json vectors.json        other random cases
"""
)
@options.seed_option()
@options.json_option("Write the vectors to a file.")
def command(seed: int, json_path: Path | None) -> None:
    """Write test vectors: cases of seven rules, correct answers, and mutants that must fail.

    Each case contains its models, the purpose of each random number, the exact law of texts,
    the mean number of accepted draft tokens, and rounds with their answers in the line format of
    `otlp audit --command`.  A verifier with the same random numbers must return the same tokens;
    each mutant (an incorrect rule) answers at least one round differently.
    """
    found = make_vectors(seed)
    write_result(json_path, "vectors", found)
    made = table("rule", "shape", "accepted", "mutants", "min total variation")
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
        note("no file was written: add --json FILE")
