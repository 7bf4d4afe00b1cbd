"""Console, progress bars, atomic file writing and error messages of all commands.

Names of models, notes and file names are untrusted.  All printed text goes through `clean` and is
never parsed as markup, so that it cannot control the terminal.
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
"""Version of the JSON format of `write_result`; see docs/schemas/otlp.json."""

UNLIMITED_WIDTH = 1_000_000
"""Width in columns of a pipe or a file, so that no line is wrapped."""


class PlainConsole(Console):
    """Console that prints strings without markup, emoji codes and control characters."""

    collected: list[Any] | None = None
    """The printed objects while `collected` runs; None otherwise."""

    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """Size of the terminal; unlimited width without a terminal, even if `COLUMNS` is set."""
        found = super().size
        seen = self.is_terminal and self.collected is None
        return found if seen else found._replace(width=UNLIMITED_WIDTH)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print the objects, or append them to `collected`."""
        if self.collected is None:
            super().print(*objects, **options)
        else:
            self.collected += objects

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string; rich calls this for all printed strings, including table cells."""
        return super().render_str(clean(text), **{**options, "markup": False, "emoji": False})

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError from `print`: rich would exit with status 1."""
        raise BrokenPipeError


console = PlainConsole(highlight=False)


@contextmanager
def collected() -> Iterator[list[str | list[list[str]]]]:
    """Collect the output of `console`: text, and tables as rows of cells with the header first."""
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


PROGRESS_INTERVAL = 20.0
"""Seconds between two progress lines if standard error is not a terminal."""


class _Bar(Progress):
    """Progress bar, with a table of the results so far below the bar."""

    table: Table | None = None

    def get_renderables(self) -> Iterator[Any]:
        """Return the parts of the display."""
        yield from super().get_renderables()
        if self.table is not None:
            yield self.table


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar with the remaining time on standard error.

    If standard error is not a terminal, print a line every `PROGRESS_INTERVAL` seconds.  Yields a
    function ``step(words="", done=None, table=None)`` to call once per step: `words` replaces the
    label, `done` sets the amount done, and `table` is shown below the bar.  Without a total the bar
    shows the elapsed time.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    errors = PlainConsole(stderr=True)
    with _Bar(
        *columns, console=errors, transient=True, disable=not errors.is_terminal, expand=True
    ) as bar:
        task = bar.add_task(label, total=total)
        start = printed = perf_counter()

        def step(words: str = "", done: float | None = None, table: Table | None = None) -> None:
            nonlocal printed
            if not errors.is_terminal and (now := perf_counter()) > printed + PROGRESS_INTERVAL:
                printed = now
                warn(f"{label}: {words or 'running'} ({now - start:.0f} s so far)")
            advance, bar.table = 1 if done is None else None, table
            bar.update(task, advance=advance, completed=done, description=clean(words) or None)

        yield step


def table(first: str, *others: str, **options: Any) -> Table:
    """Make an empty table: a first column for names, the others for numbers."""
    made = Table(**{"box": None, "pad_edge": False, **options})
    made.add_column(first, no_wrap=True)
    for heading in others:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def show(made: Table) -> None:
    """Print a table; split a table wider than the terminal into parts, one below the other.

    The title is printed once.  Each part has the first column and as many others as fit.
    """
    if made.title:
        console.print(made.title)
    room, endless = console.width, console.options.update(width=UNLIMITED_WIDTH)
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
    """Print a title and a table of names and values; empty values are skipped."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for name, value in content.items():
        if value:
            made.add_row(name, value)
    console.print(title)
    console.print(made)


def note(text: str) -> None:
    """Print a note below a table."""
    console.print(text, style="dim")


def warn(message: str) -> None:
    """Print one line to standard error."""
    click.echo(f"otlp: {clean(message)}", err=True)


class CommandError(click.ClickException):
    """A command failed; the message is one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        warn(self.message)


def fail(message: str) -> NoReturn:
    """End a command with one line on standard error and exit status 2.

    Raises
    ------
    CommandError
        Always; `otlp.cli.exit_status` exits the process.
    """
    raise CommandError(message)


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a file atomically with `write`, and create its folders; see `whole_file`."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            write(temporary)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")


def write_figure(path: Path | None, draw: Callable[..., object], *content: Any) -> None:
    """Write a figure atomically with ``draw(file, *content)``; skip if `path` is None."""
    if path is not None:
        write_whole(path, lambda temporary: draw(temporary, *content))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON atomically; numbers that are not finite become null."""
    text = json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_bytes(text.encode()))


def write_result(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Write the result of a command as in docs/schemas/otlp.json; skip if `path` is None."""
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
