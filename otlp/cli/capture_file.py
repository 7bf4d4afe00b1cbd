"""The capture that a command reads: its file, and how a file of pairs of p and q is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from otlp.cli.options import Decorator, several
from otlp.data.captures import Capture, builtin, load
from otlp.data.pairs import READERS, read_pairs


def file_word(path: str) -> str:
    """A file name as a command line has it: one that begins with a dash is no option."""
    return f"./{path}" if path.startswith("-") else path


@dataclass(frozen=True)
class CaptureFile:
    """A file as the command line names it; without a path it is the built-in capture."""

    path: str | None = None
    logits: bool = False
    pad_vocabulary: bool = False

    @property
    def name(self) -> str:
        """The path, or "built-in"."""
        return self.path or "built-in"

    @property
    def words(self) -> tuple[str, ...]:
        """How a command line names the file; nothing for the built-in capture."""
        if self.path is None:
            return ()
        flags = {"--logits": self.logits, "--pad-vocabulary": self.pad_vocabulary}
        return (file_word(self.path), *(flag for flag, given in flags.items() if given))

    def open(self) -> Capture:
        """Load a capture, or pairs of p and q by the ending of the file.

        Raises
        ------
        click.UsageError
            If an option of files of pairs is given, and the file is none.
        """
        if self.path is not None and Path(self.path).suffix.lower() in READERS:
            found = read_pairs(
                self.path, "logits" if self.logits else "probabilities", self.pad_vocabulary
            )
            if found.note:
                click.echo(f"otlp: {found.note}", err=True)
            return found
        self.refuse_pairs("give such a file")
        return builtin() if self.path is None else load(self.path)

    def refuse_pairs(self, why: str) -> None:
        """Refuse the options of files of pairs, where no file is read.

        Raises
        ------
        click.UsageError
        """
        if self.logits or self.pad_vocabulary:
            raise click.UsageError(
                f"--logits and --pad-vocabulary are for {', '.join(READERS)}: {why}"
            )


pair_file_options = several(
    click.option(
        "--logits", is_flag=True, help="FILE (.npz, .npy, .csv) holds logits, not p and q."
    ),
    click.option(
        "--pad-vocabulary",
        is_flag=True,
        help="Tokens beyond the shorter vocabulary of FILE have probability 0 in both models.",
    ),
)
"""How a file of pairs of p and q is read."""


def _with_pairs(file: Decorator) -> Decorator:
    """Add the parameter `capture` and the options of files of pairs, passed as one object."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_file(
            *, capture: str | None, logits: bool, pad_vocabulary: bool, **others: Any
        ) -> Any:
            return command(capture=CaptureFile(capture, logits, pad_vocabulary), **others)

        return several(file, pair_file_options)(with_file)

    return decorate


capture_argument = _with_pairs(
    click.argument("capture", required=False, type=click.Path(), metavar="[FILE]")
)
capture_option = _with_pairs(
    click.option(
        "--capture", type=click.Path(), help="Take p and q from a capture, or a file of p and q."
    )
)
