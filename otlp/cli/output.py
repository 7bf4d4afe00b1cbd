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
from time import perf_counter
from typing import IO, Any, NoReturn

import click
from rich.console import Console, ConsoleDimensions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from otlp import __version__
from otlp.data.whole_file import whole_file
from otlp.errors import clean

FORMAT = 1
"""Version of what `write_result` writes; see docs/schemas/otlp.json."""

ENDLESS = 1_000_000
"""Columns of a pipe or a file, where nothing is wrapped."""


class PlainConsole(Console):
    """Prints strings as they are: no markup, no emoji codes, no control characters."""

    collected: list[Any] | None = None
    """The printed objects while `collected` runs; None otherwise."""

    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """Nothing is wrapped or cut where no terminal is, whatever `COLUMNS` says."""
        found = super().size
        seen = self.is_terminal and self.collected is None
        return found if seen else found._replace(width=ENDLESS)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, or collect what would be printed."""
        if self.collected is None:
            super().print(*objects, **options)
        else:
            self.collected += objects

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string that is printed, in a table too, passes here."""
        return super().render_str(clean(text), **{**options, "markup": False, "emoji": False})

    def on_broken_pipe(self) -> None:
        """Let the error out of `print`, where rich ends the process with status 1."""
        raise BrokenPipeError


console = PlainConsole(highlight=False)


@contextmanager
def collected() -> Iterator[list[str | list[list[str]]]]:
    """Collect what `console` would print: text, and tables as rows of cells, the heads first."""
    found: list[str | list[list[str]]] = []
    console.collected = []
    try:
        yield found
        for one in console.collected:
            if isinstance(one, Table):
                cells = ([column.header, *column.cells] for column in one.columns)
                found.append([list(map(str, row)) for row in zip(*cells, strict=True)])
            elif str(one).strip():
                found.append(str(one).strip())
    finally:
        console.collected = None


PATIENCE = 20.0
"""Seconds that a command may be silent where no bar is seen."""


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar with the time that is left, on standard error.

    Where that is no terminal, what is being done is printed in a line every `PATIENCE` seconds.
    Yields a function that is called once a step, with the words to show from then on, if any, or
    with those and how much is done.  Without a total the bar shows the time that has passed.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    errors = PlainConsole(stderr=True)
    with Progress(
        *columns, console=errors, transient=True, disable=not errors.is_terminal, expand=True
    ) as bar:
        task = bar.add_task(label, total=total)
        began = said = perf_counter()

        def step(words: str = "", done: float | None = None) -> None:
            nonlocal said
            if not errors.is_terminal and (now := perf_counter()) - said > PATIENCE:
                said = now
                warn(f"{label}: {words or 'going on'} ({now - began:.0f} s so far)")
            advance = 1 if done is None else None
            bar.update(task, advance=advance, completed=done, description=clean(words) or None)

        yield step


def table(first: str, *others: str, **options: Any) -> Table:
    """An empty table: the first column is for names, the others are for numbers."""
    made = Table(**{"box": None, "pad_edge": False, **options})
    made.add_column(first, no_wrap=True)
    for heading in others:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def show(made: Table) -> None:
    """Print a table; what is too wide for the terminal comes in parts, one below the other.

    The title comes before them; each has the first column of the table, and as many others as
    there is room for.
    """
    if made.title:
        console.print(made.title)
    room, endless = console.width, console.options.update(width=ENDLESS)
    shown = [0]
    for place in range(1, len(made.columns)):
        wider = _part(made, [*shown, place])
        if len(shown) > 1 and console.measure(wider, options=endless).maximum > room:
            console.print(_part(made, shown))
            console.print()
            shown = [0]
        shown.append(place)
    console.print(_part(made, shown))


def _part(made: Table, places: list[int]) -> Table:
    part = Table(box=made.box, pad_edge=made.pad_edge)
    columns = [made.columns[place] for place in places]
    for column in columns:
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
    for row, *cells in zip(made.rows, *(column.cells for column in columns), strict=True):
        part.add_row(*cells, style=row.style)
    return part


def facts(title: str, content: Mapping[str, str]) -> None:
    """Print names and what is to be said of each; nothing is said of what is empty."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for name, value in content.items():
        if value:
            made.add_row(name, value)
    console.print(title)
    console.print(made)


def note(text: str) -> None:
    """Print what is to be known beside a table."""
    console.print(text, style="dim")


def warn(message: str) -> None:
    """Print one line to standard error."""
    click.echo(f"otlp: {clean(message)}", err=True)


class NotDone(click.ClickException):
    """A command does not come to its end; the message says why in one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print that line."""
        warn(self.message)


def fail(message: str) -> NoReturn:
    """End a command with one line on standard error and status 2.

    Raises
    ------
    NotDone
        `otlp.cli.ending` ends the process.
    """
    raise NotDone(message)


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


def write_result(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Write what a command found, as docs/schemas/otlp.json says; nothing without a path."""
    if path is not None:
        head = {"command": command, "format": FORMAT, "otlp": __version__}
        write_json(path, {**head, **content})


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
