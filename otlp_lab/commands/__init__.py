"""``otlp lab COMMAND``: experiments, one file a command."""

import click

from otlp.cli.lazy_group import LazyGroup

COMMANDS = {
    "design": "Choose the draft tree for a budget of nodes, with what it will give.",
    "tune": "Choose the fastest setting for a pair of models on this device.",
    "decode": "Decode with the setting that tune found.",
    "calibrate": "Fit how likely candidates under shared noise are to be the target's draw.",
    "audit-engine": "Say whether the verifier of a serving engine is lossless.",
    "audit-server": "Say whether the texts of a running server are those of another.",
}


@click.command(cls=LazyGroup, package="otlp_lab.commands", summaries=COMMANDS)
def command() -> None:
    """Run an experiment: names, options and files may change with any version."""
