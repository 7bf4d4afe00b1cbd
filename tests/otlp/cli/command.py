"""Command-line calls within this process."""

from __future__ import annotations

import click
from click.testing import CliRunner, Result

from otlp.cli import COMMANDS, main
from otlp_lab.commands import COMMANDS as EXPERIMENTS

PRODUCT = [name for name in COMMANDS if name != "lab"]
ALL = [*PRODUCT, *(f"lab {name}" for name in EXPERIMENTS)]
"""Names of all commands, as typed."""


def command_of(words: str) -> click.Command:
    """Return the command with a name of `ALL`."""
    found: click.Command = main
    for name in words.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), name)
        assert inner is not None, words
        found = inner
    return found


def run(*words: object) -> Result:
    """Run `otlp` with arguments; errors other than those of click propagate."""
    return CliRunner(catch_exceptions=False).invoke(main, [str(word) for word in words])


def done(*words: object, status: int = 0) -> str:
    """Run a command, check its exit status, and return its output."""
    result = run(*words)
    assert result.exit_code == status, result.output
    return result.output


def refused(*words: object) -> str:
    """Run a command that refuses its arguments, and return its output on one line."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())
