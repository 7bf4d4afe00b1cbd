"""What the commands share on the way out: console, progress, files written whole, errors.

Names of models, notes and file names come from others.  Whatever is printed goes through `clean`,
and nothing is read as markup, so that they appear as they are and steer no terminal.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from otlp.data.whole_file import whole_file
from otlp.errors import clean


class PlainConsole(Console):
    """Prints strings as they are: no markup, no emoji codes, no control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string that is printed, in a table too, passes here."""
        return super().render_str(clean(text), **{**options, "markup": False, "emoji": False})


console = PlainConsole(highlight=False)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal, on standard error.

    Yields a function that is called once a step, with the words to show from then on, if any, or
    with those and how much is done.
    """
    columns = (
        TextColumn("{task.description:32}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    errors = PlainConsole(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(label, total=total)

        def step(words: str, done: float | None = None) -> None:
            advance = 1 if done is None else None
            bar.update(task, advance=advance, completed=done, description=clean(words) or None)

        yield step


def table(first: str, *others: str, **options: Any) -> Table:
    """An empty table: the first column is for names, the others are for numbers."""
    made = Table(**options)
    made.add_column(first, no_wrap=True)
    for heading in others:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def facts(title: str, content: Mapping[str, str]) -> Table:
    """A table of names and what is to be said of each; nothing is said of what is empty."""
    made = Table(title=title, show_header=False)
    made.add_column(style="bold")
    made.add_column()
    for name, value in content.items():
        if value:
            made.add_row(name, value)
    return made


def warn(message: str) -> None:
    """Print one line to standard error."""
    click.echo(f"otlp: {clean(message)}", err=True)


def fail(message: str) -> NoReturn:
    """Print one line to standard error and exit with status 2."""
    warn(message)
    raise SystemExit(2)


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let `write` fill a file, in folders made for it: all of it or none; see `whole_file`."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            write(temporary)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON, whole or not at all; what is not finite becomes null."""
    text = json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_bytes(text.encode()))


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
