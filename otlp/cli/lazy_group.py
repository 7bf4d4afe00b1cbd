"""A click group that imports each command when it is called."""

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

from otlp.cli.exit_status import raise_broken_pipe, status_of
from otlp.cli.output import fail
from otlp.errors import OTLPError


def name_options(message: str, command: click.Command | None) -> str:
    """Replace parameter names in a message by option names, such as top_k by --top-k."""
    params = () if command is None else command.params
    flags = {param.name: max(param.opts, key=len) for param in params if "_" in (param.name or "")}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: flags.get(word[0], word[0]), message)


class LazyGroup(click.Group):
    """Imports a command when it is called, so that --help is fast.

    Parameters
    ----------
    package : str
        Package with one module per command; the module defines `command`.
    summaries : dict of str to str
        Summary of each command, in the order of the help.
    other_groups : dict of str to str
        Commands of other groups, and their command lines, suggested for unknown commands.
    """

    def __init__(
        self,
        *args: Any,
        package: str,
        summaries: Mapping[str, str],
        other_groups: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.package, self.summaries, self.other_groups = package, summaries, other_groups

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
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
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; suggest the nearest name for an unknown command."""
        from difflib import get_close_matches

        if args and args[0] not in self.summaries and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.summaries, n=1)
            meant = self.other_groups.get(args[0], near[0] if near else "")
            hint = f" Did you mean {meant!r}?" if meant else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; error messages use option names for parameter names."""
        try:
            with raise_broken_pipe():
                return super().invoke(ctx)
        except OTLPError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            fail(f"{type(error).__name__}: {name_options(str(error), command)}")

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the arguments; print the help on request."""
        with raise_broken_pipe():
            return super().make_context(*args, **options)

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and exit with the status from `otlp.cli.exit_status`."""
        options["standalone_mode"] = False
        os.environ["MPLBACKEND"] = "agg"  # Notebooks export their own backend to commands.
        sys.exit(status_of(partial(super().main, *args, **options)))
