"""A group of commands that imports each when it is called, one file a command."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import click

from otlp.cli.ending import out_of_click, status_of
from otlp.cli.output import fail
from otlp.errors import OTLPError


def with_options(message: str, command: click.Command | None) -> str:
    """Name the options of a command in a message as they are written there: --top-k for top_k."""
    params = () if command is None else command.params
    flags = {param.name: max(param.opts, key=len) for param in params if "_" in (param.name or "")}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: flags.get(word[0], word[0]), message)


class LazyGroup(click.Group):
    """Imports a command when it is called, so that --help is quick.

    Parameters
    ----------
    package : str
        Where each command has a module of its name, and that a `command`.
    summaries : dict of str to str
        What each does, in the order in which a user meets them.
    elsewhere : dict of str to str
        Commands of other groups that may be meant, and how to call them.
    """

    def __init__(
        self,
        *args: Any,
        package: str,
        summaries: Mapping[str, str],
        elsewhere: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.package, self.summaries, self.elsewhere = package, summaries, elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.summaries:
            return None
        module = f"{self.package}.{cmd_name.replace('-', '_')}"
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown one."""
        from difflib import get_close_matches

        if args and args[0] not in self.summaries and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.summaries, n=1)
            meant = self.elsewhere.get(args[0], near[0] if near else "")
            hint = f" Did you mean {meant!r}?" if meant else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Name the options of the command in what it says of them."""
        try:
            with out_of_click():
                return super().invoke(ctx)
        except OTLPError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            fail(f"{type(error).__name__}: {with_options(str(error), command)}")

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the words, and print the help that they ask for."""
        with out_of_click():
            return super().make_context(*args, **options)

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and end the process, with the status that `otlp.cli.ending` says."""
        options["standalone_mode"] = False
        os.environ["MPLBACKEND"] = "agg"  # a notebook's stands in what it exports to commands
        sys.exit(status_of(partial(super().main, *args, **options)))
