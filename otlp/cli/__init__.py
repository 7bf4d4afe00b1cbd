"""The command line: ``otlp COMMAND``, one file a command."""

from __future__ import annotations

import click

from otlp.cli.lazy_group import LazyGroup

__all__ = ["main"]

COMMANDS = {
    "solve": "Solve one row of a capture and print its certificate.",
    "export": "Write the linear program of a row, for another solver.",
    "check": "Cross-check every solver that supports a row.",
    "bench": "Time solvers on a capture: the table of the paper.",
    "audit": "Say whether a verification rule, yours or ours, is lossless.",
    "vectors": "Write test vectors for verifiers in any language.",
    "sweep": "Sweep rules over settings and many rows: resumable, on many workers.",
    "compare": "Compare the acceptance of rules under every draft scheme.",
    "decode": "Decode with verification algorithms on real models, measured.",
    "cascade": "Measure speculative cascades: quality against cost over the threshold.",
    "capture": "Write the logits that two models meet while decoding.",
    "info": "Describe a capture file.",
    "report": "Write one page that says what a draft is worth.",
    "lab": "Experiments, without a promise: trees, tuning, audits of engines and servers.",
}

LAB = {name: f"otlp lab {name}" for name in ("design", "tune", "audit-engine", "audit-server")}


@click.command(
    cls=LazyGroup,
    package="otlp.cli",
    summaries=COMMANDS,
    elsewhere=LAB,
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

    Commands read a capture of real logits; without one they use the capture that ships with the
    package.
    """
