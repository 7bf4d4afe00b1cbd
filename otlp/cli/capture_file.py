"""The capture that a command reads, and options for files with pairs of p and q."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from otlp.cli.options import as_one, several
from otlp.data.captures import Capture, builtin, load
from otlp.data.pairs import READERS, read_pairs


def file_word(path: str) -> str:
    """Return a file name for a command line; ./ protects a name that begins with a dash."""
    return f"./{path}" if path.startswith("-") else path


@dataclass(frozen=True)
class CaptureFile:
    """A capture given on the command line; None is the built-in capture."""

    path: str | None = None
    logits: bool = False
    pad_vocabulary: bool = False

    @property
    def name(self) -> str:
        """The path, or "built-in"."""
        return self.path or "built-in"

    @property
    def words(self) -> tuple[str, ...]:
        """The command-line words for this file; empty for the built-in capture."""
        if self.path is None:
            return ()
        flags = {"--logits": self.logits, "--pad-vocabulary": self.pad_vocabulary}
        return (file_word(self.path), *(flag for flag, given in flags.items() if given))

    def open(self) -> Capture:
        """Load a capture, or pairs of p and q, depending on the file extension.

        Raises
        ------
        click.UsageError
            If an option for files of pairs is given and the file is a capture.
        """
        if self.path is not None and Path(self.path).suffix.lower() in READERS:
            found = read_pairs(
                self.path, "logits" if self.logits else "probabilities", self.pad_vocabulary
            )
            if found.note:
                click.echo(f"otlp: {found.note}", err=True)
            return found
        self.refuse_pairs("give such a FILE")
        return builtin() if self.path is None else load(self.path)

    def refuse_pairs(self, why: str) -> None:
        """Check that no option for files of pairs is given.

        Raises
        ------
        click.UsageError
            If one is given; the message ends with `why`.
        """
        if self.logits or self.pad_vocabulary:
            raise click.UsageError(
                f"--logits and --pad-vocabulary need a {' or '.join(READERS)} file: {why}"
            )


pair_file_options = several(
    click.option(
        "--logits", is_flag=True, help="The file (.npz, .npy, .csv) contains logits, not p and q."
    ),
    click.option(
        "--pad-vocabulary",
        is_flag=True,
        help="Set the probability of tokens beyond the shorter vocabulary to 0 in both models.",
    ),
)
"""Options for files with pairs of p and q."""


_as_capture = several(pair_file_options, as_one("capture", CaptureFile))

capture_argument = several(
    click.argument("path", required=False, type=click.Path(), metavar="[FILE]"), _as_capture
)
capture_option = several(
    click.option(
        "--capture",
        "path",
        type=click.Path(),
        help="Capture, or .npz, .npy or .csv file with p and q.",
    ),
    _as_capture,
)
