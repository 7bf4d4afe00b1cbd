"""The command line ``otlp COMMAND``, one file per command."""

from __future__ import annotations

import click

from otlp.cli.lazy_group import LazyGroup

__all__ = ["main"]

COMMANDS = {
    "solve": "Solve one row of a capture and print its certificate.",
    "export": "Write the linear program of one row for another solver.",
    "check": "Cross-check every solver that supports a row.",
    "bench": "Time solvers on a capture, as in Table 1 of the paper Global Resolution.",
    "audit": "Test whether a verification rule is lossless.",
    "vectors": "Write test vectors for verifiers in any language.",
    "sweep": "Measure rules on many rows and settings, in parallel, with a journal to resume from.",
    "compare": "Compare the acceptance of rules under every draft scheme.",
    "decode": "Decode with verification algorithms on real models and measure the speed.",
    "cascade": "Measure quality and cost of speculative cascades at each threshold.",
    "capture": "Record the logits of two models while decoding.",
    "info": "Describe a capture file.",
    "report": "Write a report on a draft model as one HTML page.",
    "lab": "Experiments with no stable interface: trees, tuning, audits of engines and servers.",
}

LAB = {name: f"otlp lab {name}" for name in ("design", "tune", "audit-engine", "audit-server")}


@click.command(
    cls=LazyGroup,
    package="otlp.cli",
    summaries=COMMANDS,
    other_groups=LAB,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog="Start with:\n\n\b\n  otlp solve --row 3 --n 4\n  otlp check --top-k 10\n  otlp bench",
)
@click.version_option(package_name="otlp")
def main() -> None:
    """Solve, cross-check and time the optimal transport LP of multi-draft speculative sampling.

    Commands read a capture, a file of real logits. Without a file they use the built-in capture.
    """
