"""What the commands share on the way in: types of options, blocks of options, the capture."""

from __future__ import annotations

import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from click.shell_completion import CompletionItem

from otlp.cli.output import note
from otlp.data.captures import Capture, builtin, load
from otlp.drafts.by_name import SCHEMES, make_scheme
from otlp.errors import OTLPError
from otlp.problem import Problem
from otlp.solvers import SOLVERS, make_solver
from otlp.studies.canvas import file_types
from otlp.sweeps.cluster import on_scheduler
from otlp.sweeps.workers import MOST_JOBS

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class ListOf(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A list such as 10,100, each part of one type; at least one part."""

    name = "list"

    def __init__(self, part: Any) -> None:
        self.part = click.types.convert_type(part)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Convert part by part."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            self.fail("the list is empty: give at least one, or several as in a,b", param, ctx)
        return tuple(self.part.convert(word, param, ctx) for word in words)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last part."""
        done, comma, last = incomplete.rpartition(",")
        found = self.part.shell_complete(ctx, param, last)
        return [CompletionItem(done + comma + item.value) for item in found]


class SolverName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of a solver."""

    name = "solver"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that is none, and suggest the nearest."""
        try:
            make_solver(value)
        except OTLPError as error:
            self.fail(str(error), param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in SOLVERS if name.startswith(incomplete)]


class Positive(click.FloatRange):
    """A number above zero; infinity is one."""

    def __init__(self) -> None:
        super().__init__(min=0.0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert, and refuse NaN too, which is in every range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class ByteCount(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number of bytes, such as 5GB, 500MB or 2GiB; at least one."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert the number and its unit."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT]?)(i?)B?", value, re.I | re.ASCII)
        if match is None or (match[3] and not match[2]):
            self.fail(f"{value!r} is no size: give one such as 5GB, 500MB or 2GiB", param, ctx)
        power = " KMGT".index(match[2].upper() or " ")
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
        if size < 1:
            self.fail(f"{value!r} is less than a byte", param, ctx)
        return size


class OutputFile(click.Path):
    """A file to write, refused before any work if it could not be written; none is left behind.

    Parameters
    ----------
    endings : callable, optional
        Gives the endings that the name may have; by default any.
    """

    def __init__(self, endings: Callable[[], tuple[str, ...]] = tuple) -> None:
        super().__init__(dir_okay=False)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check the ending, then try the folder, or the nearest one above that exists."""
        path = Path(os.fspath(value))
        try:
            endings = self.endings()
            if endings and path.suffix.lower() not in endings:
                self.fail(f"{value!r} ends in none of {', '.join(endings)}", param, ctx)
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(path.stat().st_mode):
                    self.fail(f"{value!r} is no ordinary file: name another", param, ctx)
            folder = path.absolute().parent
            while not folder.exists():
                folder = folder.parent
            with tempfile.TemporaryFile(dir=folder):
                pass
        except (OSError, ValueError, OTLPError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.fail(f"{value!r} cannot be written: {reason}", param, ctx)
        return path


def json_option(help: str) -> Decorator:
    """Add ``--json``, passed as `json_path`."""
    return click.option("--json", "json_path", type=OutputFile(), help=help)


def figure_option(help: str, flag: str = "--figure") -> Decorator:
    """Add an option for a figure, passed as `figure_path`, or after its own flag."""
    name = flag[2:].replace("-", "_") + "_path"
    return click.option(flag, name, type=OutputFile(file_types), help=f"{help} Needs matplotlib.")


def row_option(default: int | None = 0) -> Decorator:
    """Add ``--row``, which row of the capture."""
    return click.option("--row", type=int, default=default, help="Which row of the capture.")


def rows_option(default: int | None) -> Decorator:
    """Add ``--rows``, how many rows of the capture; None: all."""
    return click.option(
        "--rows",
        type=click.IntRange(1),
        default=default,
        show_default="all" if default is None else True,
        help="How many rows, one drawn from each of so many equal stretches of the capture.",
    )


def n_option(default: int | str) -> Decorator:
    """Add ``--n``; a default such as 1,2,4 makes it a list."""
    kind = ListOf(click.IntRange(1)) if isinstance(default, str) else click.IntRange(1)
    return click.option("--n", type=kind, default=default, help="Number of drafts.")


def temperature_option(default: float | str = 1.0) -> Decorator:
    """Add ``--temperature``; a default that is a string makes it a list."""
    kind = ListOf(float) if isinstance(default, str) else float
    help = "Temperature of both models."
    return click.option("--temperature", type=kind, default=default, help=help)


def top_k_option(default: int | str = 0) -> Decorator:
    """Add ``--top-k``, None where all tokens are kept; a default such as 10,100 makes it a list."""
    kind = ListOf(click.IntRange(0)) if isinstance(default, str) else click.IntRange(0)

    def none_for_all(_: click.Context, __: click.Parameter, value: Any) -> Any:
        return tuple(k or None for k in value) if isinstance(value, tuple) else value or None

    help = "Cut the draft to its k most likely tokens; 0 keeps all."
    return click.option("--top-k", type=kind, default=default, callback=none_for_all, help=help)


def top_p_option(command: Command) -> Command:
    """Add ``--top-p``, None where all tokens are kept."""
    return click.option(
        "--top-p",
        type=float,
        default=1.0,
        callback=lambda _, __, value: None if value == 1.0 else value,
        help="Cut the draft to its top-p nucleus; 1 keeps all.",
    )(command)


def draft_temperature_option(kind: Any = float) -> Decorator:
    """Add ``--draft-temperature``, None where it is that of both."""
    return click.option(
        "--draft-temperature",
        type=kind,
        show_default="that of both",
        help="Temperature of the draft alone.",
    )


def row_options(top_k: int = 0) -> Decorator:
    """Add the options that turn a row of logits into distributions, for `Capture.distributions`."""
    options = (draft_temperature_option(), temperature_option(), top_p_option, top_k_option(top_k))
    return lambda command: reduce(lambda made, option: option(made), options, command)


def scheme_option(command: Command) -> Command:
    """Add ``--scheme``, how the tokens are drafted."""
    return click.option(
        "--scheme",
        type=click.Choice(list(SCHEMES)),
        default="iid",
        help="How the n tokens are drafted.",
    )(command)


def schemes_option(default: str) -> Decorator:
    """Add ``--schemes``, several ways to draft."""
    kind = ListOf(click.Choice(list(SCHEMES)))
    help = "How the n tokens are drafted, each in turn."
    return click.option("--schemes", type=kind, default=default, help=help)


def rules_option(default: str) -> Decorator:
    """Add ``--rules``, solvers whose acceptance is measured."""
    kind = ListOf(SolverName())
    return click.option("--rules", type=kind, default=default, help="Solvers by their names.")


def solvers_option(default: str | None) -> Decorator:
    """Add ``--solvers``; None: all."""
    return click.option(
        "--solvers",
        type=ListOf(SolverName()),
        default=default,
        show_default="all" if default is None else True,
        help="Solvers by their names.",
    )


def time_limit_option(default: float) -> Decorator:
    """Add ``--time-limit``, seconds for each solve or for an audit."""
    return click.option(
        "--time-limit",
        type=Positive(),
        default=default,
        help="Seconds after which a solve, or an audit, is ended.",
    )


def tolerance_option(default: float) -> Decorator:
    """Add ``--tolerance``."""
    return click.option(
        "--tolerance",
        type=Positive(),
        default=default,
        help="The largest difference of probabilities that counts as none.",
    )


def vocab_size_option(default: int | None, least: int = 1) -> Decorator:
    """Add ``--vocab-size``, at least `least`."""
    return click.option(
        "--vocab-size",
        type=click.IntRange(least),
        default=default,
        help="Tokens of made-up distributions.",
    )


def length_option(default: int | str) -> Decorator:
    """Add ``--length``; a default that is a string makes it a list."""
    kind = ListOf(click.IntRange(1)) if isinstance(default, str) else click.IntRange(1)
    help = "Tokens of a drafted path, at most."
    return click.option("--length", type=kind, default=default, help=help)


def tokens_option(default: int) -> Decorator:
    """Add ``--tokens``."""
    help = "Tokens written after each prompt."
    return click.option("--tokens", type=click.IntRange(1), default=default, help=help)


def seed_option(default: int | str = 0) -> Decorator:
    """Add ``--seed``; a default that is a string makes it a list."""
    kind = ListOf(click.IntRange(0)) if isinstance(default, str) else click.IntRange(0)
    return click.option("--seed", type=kind, default=default, help="Seed of random numbers.")


def sampling_options(command: Command) -> Command:
    """Add the cuts of both models: the law that is decoded from."""
    top_k = click.option(
        "--sampling-top-k",
        type=click.IntRange(0),
        default=0,
        callback=lambda _, __, value: value or None,
        help="Cut both models to their k most likely tokens; 0 keeps all.",
    )
    top_p = click.option(
        "--sampling-top-p",
        type=float,
        default=1.0,
        help="Then cut both to their top-p nucleus; 1 keeps all.",
    )
    return top_k(top_p(command))


def workers_options(command: Command) -> Command:
    """Add ``--jobs`` and ``--scheduler``, for `workers`."""
    jobs = click.option(
        "--jobs",
        type=click.IntRange(1),
        show_default="1",
        help="Processes at a time on this machine.",
    )
    scheduler = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="A running Dask scheduler, such as tcp://10.0.0.1:8786: its workers do the work.",
    )
    return jobs(scheduler(command))


@contextmanager
def workers(jobs: int | None, scheduler: str | None) -> Iterator[dict[str, Any]]:
    """Arguments `jobs` and `executor` of what is done inside the block, as the options say.

    Raises
    ------
    SchedulerError, EngineNotFoundError
        See `on_scheduler`.
    """
    if jobs is not None and scheduler is not None:
        raise click.UsageError(
            "--jobs is for this machine, and --scheduler for its workers: give one of them"
        )
    if scheduler is None:
        yield {"jobs": jobs}
        return
    with on_scheduler(scheduler) as (executor, many):
        yield {"jobs": min(many, MOST_JOBS), "executor": executor}


def capture_argument(command: Command) -> Command:
    """Add the CAPTURE argument; without it the built-in capture is used."""
    return click.argument("capture", required=False, type=click.Path())(command)


def open_capture(path: str | None) -> Capture:
    """Load a capture, the built-in one by default: of a file, an index or a folder."""
    return builtin() if path is None else load(path)


def source(path: str | None, capture: Capture) -> dict[str, Any]:
    """Say where rows come from, for `write_result`."""
    return {
        "capture": "built-in" if path is None else path,
        "target": capture.target_model,
        "draft": capture.draft_model,
        "synthetic": capture.synthetic,
    }


def truncations(capture: Capture, rows: Sequence[int], **cut: Any) -> list[float]:
    """What rows leave open, by `Capture.truncation`; `cut` may name a scheme."""
    cut.pop("scheme", None)
    return [capture.truncation(row, **cut) for row in rows]


def say_truncations(capture: Capture, found: Sequence[float]) -> None:
    """Print what rows of a `TopCapture` leave open; nothing for whole rows."""
    if capture.kept is not None:
        more = f"{max(found):.2g}"
        if len(found) > 1:
            more = f"{fmean(found):.2g} on average, {more} in one row"
        note(
            f"The capture keeps the {capture.kept} likeliest tokens of a row; drafts are of these. "
            f"Had it kept all, the optimum would be the same, or higher by at most {more}."
        )


def problem(capture: Capture, row: int, n: int, *, scheme: str = "iid", **cut: Any) -> Problem:
    """Build the OTLP of one row; see `Capture.distributions` for `cut`."""
    target, draft = capture.distributions(row, **cut)
    return Problem(target, make_scheme(scheme, draft, n))
