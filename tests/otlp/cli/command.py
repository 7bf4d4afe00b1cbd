"""The command line, called in this process."""

from __future__ import annotations

import click
from click.testing import CliRunner, Result

from otlp.cli import COMMANDS, main
from otlp_lab.commands import COMMANDS as EXPERIMENTS

PRODUCT = [name for name in COMMANDS if name != "lab"]
ALL = [*PRODUCT, *(f"lab {name}" for name in EXPERIMENTS)]
"""Commands as they are written."""


def command_of(words: str) -> click.Command:
    """The command of one of `ALL`."""
    found: click.Command = main
    for name in words.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), name)
        assert inner is not None, words
        found = inner
    return found


def run(*words: object) -> Result:
    """Run `otlp` with these words; errors that are none of click's get out."""
    return CliRunner(catch_exceptions=False).invoke(main, [str(word) for word in words])


def done(*words: object, status: int = 0) -> str:
    """What a command says that ends so."""
    result = run(*words)
    assert result.exit_code == status, result.output
    return result.output


def refused(*words: object) -> str:
    """What a command says that refuses its words, on one line."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())
