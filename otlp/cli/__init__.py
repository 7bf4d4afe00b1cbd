"""The command line: ``otlp COMMAND``, one file a command."""

from __future__ import annotations

import importlib
import re
import sys
from functools import partial
from typing import Any, NoReturn

import click

from otlp.cli.ending import out_of_click, status_of
from otlp.cli.output import fail
from otlp.errors import OTLPError

__all__ = ["main"]

COMMANDS = {
    "solve": "Solve one row of a capture and print its certificate.",
    "export": "Write the linear program of a row, for another solver.",
    "check": "Cross-check every solver that supports a row.",
    "bench": "Time solvers on a capture: the table of the paper.",
    "audit": "Say whether a verification rule, yours or ours, is lossless.",
    "sweep": "Sweep rules over settings and many rows: resumable, on many workers.",
    "compare": "Compare the acceptance of rules under every draft scheme.",
    "decode": "Decode with verification algorithms on real models, measured.",
    "design": "Choose the draft tree for a budget of nodes, with what it will give.",
    "tune": "Choose the fastest setting for a pair of models on this device.",
    "cascade": "Measure speculative cascades: quality against cost over the threshold.",
    "capture": "Write the logits that two models meet while decoding.",
    "info": "Describe a capture file.",
}


def with_options(message: str, command: click.Command | None) -> str:
    """Name the options of a command in a message as they are written there: --top-k for top_k."""
    params = () if command is None else command.params
    flags = {param.name: max(param.opts, key=len) for param in params if "_" in (param.name or "")}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: flags.get(word[0], word[0]), message)


class LazyGroup(click.Group):
    """Imports a command when it is called, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module("otlp.cli." + cmd_name.replace("-", "_")).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown one."""
        from difflib import get_close_matches

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
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
        sys.exit(status_of(partial(super().main, *args, **options)))


@click.command(
    cls=LazyGroup,
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
