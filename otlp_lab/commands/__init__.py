"""The command line ``otlp lab COMMAND``: experiments, one file per command."""

import click

from otlp.cli.lazy_group import LazyGroup

COMMANDS = {
    "design": "Choose the draft tree for a budget of nodes, and predict the tokens per call.",
    "tune": "Choose the fastest setting for a pair of models on this device.",
    "decode": "Decode with the setting chosen by otlp lab tune.",
    "calibrate": "Fit the acceptance of drafts that share the target's random numbers.",
    "audit-engine": "Test whether the verifier of a serving engine is lossless.",
    "audit-server": "Test whether two servers generate text from the same distribution.",
}


@click.command(cls=LazyGroup, package="otlp_lab.commands", summaries=COMMANDS)
def command() -> None:
    """Run an experiment. Names, options and file formats may change in any version."""
