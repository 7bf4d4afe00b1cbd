"""Types of options, and options that several commands share."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from functools import reduce, wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from otlp.cli.grouped_command import grouped_command as grouped_command
from otlp.data.whole_file import place_of
from otlp.drafts.by_name import SCHEMES
from otlp.errors import OTLPError, OutputError
from otlp.solvers import SOLVERS, make_solver
from otlp.solvers.engines import FLOW_ENGINES, graph_tool
from otlp.studies.canvas import file_types

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class ListOf(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A nonempty comma-separated list such as 10,100, with parts of one type.

    Commas in names of existing files do not separate parts.
    """

    name = "list"

    def __init__(self, part: Any) -> None:
        self.part = click.types.convert_type(part)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Convert each part."""
        if isinstance(value, tuple):
            return value
        words = list(_words(value, isinstance(self.part, RuleFileOr)))
        if not words:
            self.fail("the list must not be empty: give one value, or several as a,b", param, ctx)
        return tuple(self.part.convert(word, param, ctx) for word in words)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last part."""
        done, comma, last = incomplete.rpartition(",")
        found = self.part.shell_complete(ctx, param, last)
        return [CompletionItem(done + comma + item.value) for item in found]


def _words(value: str, files: bool) -> Iterator[str]:
    """Split at commas, except commas in the names of existing files if `files` is true."""
    pieces = value.split(",")
    while pieces:
        joined = (",".join(pieces[:count]).strip() for count in range(1, len(pieces) + 1))
        named = (word for word in joined if files and Path(word.rpartition(":")[0]).is_file())
        word = next(named, pieces[0].strip())
        pieces = pieces[word.count(",") + 1 :]
        if word:
            yield word


class SolverName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of a solver."""

    name = "solver"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the canonical name of a solver, or fail and suggest the nearest name."""
        try:
            return make_solver(str(value)).name
        except OTLPError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete names of solvers."""
        return [CompletionItem(name) for name in SOLVERS if name.startswith(incomplete)]


class RuleName(SolverName):
    """The name of a solver or of an equality rule (sampled verification)."""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail for an unknown name."""
        from otlp.studies.compare import EQUALITIES

        return value if value in EQUALITIES else super().convert(value, param, ctx)


class RuleFileOnly(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Rejects every name, so that only FILE.py:FUNCTION is accepted."""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fail."""
        self.fail(f"a rule must be FILE.py:FUNCTION, got {value!r}", param, ctx)


class RuleFileOr(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """FILE.py:FUNCTION, which is loaded later, or a value of another type."""

    def __init__(self, other: click.ParamType) -> None:  # type: ignore[type-arg, unused-ignore]
        self.other, self.name = other, other.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Fail for a missing file and for a value that the other type rejects."""
        file, _, function = str(value).rpartition(":")
        if not file or not function:
            return str(self.other.convert(value, param, ctx))
        if file.endswith(".py") and not Path(file).is_file():
            self.fail(f"file {file} does not exist: write FILE.py:FUNCTION", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete names of the other type."""
        return self.other.shell_complete(ctx, param, incomplete)


class Number(click.FloatRange):
    """A number in a range; infinity is allowed, NaN is not."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert and fail for NaN, which passes every range check."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class ByteCount(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number of bytes, such as 5GB, 500MB or 2GiB; at least 1 byte."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert the number and its unit."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT]?)(i?)B?", value, re.I | re.ASCII)
        if match is None or (match[3] and not match[2]):
            self.fail(f"size must be such as 5GB, 500MB or 2GiB, got {value!r}", param, ctx)
        power = " KMGT".index(match[2].upper() or " ")
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
        if size < 1:
            self.fail(f"size must be at least 1 byte, got {value!r}", param, ctx)
        return size


class OutputFile(click.Path):
    """A file to write, checked before any work; the check leaves no file behind.

    Parameters
    ----------
    endings : callable, optional
        Returns the allowed file extensions; by default any.
    """

    def __init__(self, endings: Callable[[], tuple[str, ...]] = tuple) -> None:
        super().__init__(dir_okay=False)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check the extension and that the folder, or its nearest existing parent, is writable."""
        path = Path(os.fspath(value))
        try:
            endings = self.endings()
            if endings and path.suffix.lower() not in endings:
                self.fail(f"extension must be {' or '.join(endings)}, got {value!r}", param, ctx)
            folder = place_of(path).parent
            while not folder.exists():
                folder = folder.parent
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OutputError as error:
            self.fail(str(error), param, ctx)
        except (OSError, ValueError, OTLPError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.fail(f"cannot write {value!r}: {reason}", param, ctx)
        return path


def given(names: Collection[str]) -> list[str]:
    """Return the flags of those of the named options that were given."""
    context = click.get_current_context()
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]


def json_option(help: str) -> Decorator:
    """Add ``--json``, passed as `json_path`."""
    return click.option("--json", "json_path", type=OutputFile(), help=help, callback=_no_table)


def _no_table(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """Fail for a file extension of another format than JSON."""
    if value is not None and value.suffix.lower() in (".csv", ".tex", ".npz", ".md", ".txt"):
        raise click.BadParameter(
            f"extension must be .json, got '{value}' (bench, compare, sweep and decode have "
            "--table for .csv and .tex)"
        )
    return value


table_option = click.option(
    "--table",
    "table_path",
    type=OutputFile(lambda: (".csv", ".tex")),
    help="Write means and intervals as CSV or LaTeX, by file extension.",
)


def figure_option(help: str) -> Decorator:
    """Add ``--figure``, passed as `figure_path`."""
    kind = OutputFile(file_types)
    return click.option("--figure", "figure_path", type=kind, help=f"{help} Needs matplotlib.")


journal_option = click.option(
    "--journal",
    type=OutputFile(),
    help="File for finished results. If the file exists, the command adds only missing results.",
)


def _option(
    flag: str, part: Any, help: str, usual: Any = None, unset: str = "", **more: Any
) -> Callable[..., Decorator]:
    """Return a decorator factory for an option with a command-specific default.

    A string default such as 1,2,4 makes the option a list; `unset` describes the default None.
    """

    def with_default(default: Any = usual) -> Decorator:
        listed = isinstance(default, str) and not isinstance(part, ListOf | click.Choice)
        kind = ListOf(part) if listed else part
        shown = unset if default is None and unset else True
        return click.option(flag, type=kind, default=default, show_default=shown, help=help, **more)

    return with_default


def _or_none(nothing: object) -> Callable[[Any, Any, Any], Any]:
    """Return a callback that maps the value `nothing`, which does not truncate, to None."""

    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(None if one == nothing else one for one in value)
        return None if value == nothing else value

    return callback


def several(*options: Decorator) -> Decorator:
    """Combine options into one decorator, in the order of the help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def as_one(name: str, kind: type[Any]) -> Decorator:
    """Pass the options that are the fields of a dataclass as one argument `name`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def decorated(**options: Any) -> Any:
            chosen = {field.name: options.pop(field.name) for field in fields(kind)}
            return command(**{name: kind(**chosen)}, **options)

        return decorated

    return decorate


POSITIVE = Number(0.0, min_open=True)
_COUNT, _NAMES = click.IntRange(1), ListOf(SolverName())


row_option = _option("--row", int, "Row number in the capture, from 0.", 0)
rows_option = _option(
    "--rows",
    _COUNT,
    "Number of rows: FILE is divided into equal parts, and one row is drawn from each part.",
    unset="all",
)
n_option = _option("--n", _COUNT, "Number of drafts.")
temperature_option = _option("--temperature", float, "Temperature of all models.", 1.0)
top_k_option = _option(
    "--top-k",
    click.IntRange(0),
    "Truncate the draft to its k most likely tokens; 0 keeps all.",
    0,
    callback=_or_none(0),
)
_TOP_P = "Truncate the draft to its top-p nucleus; 1 keeps all."
top_p_option = _option("--top-p", float, _TOP_P, 1.0, callback=_or_none(1.0))
scheme_option = _option(
    "--scheme", click.Choice(list(SCHEMES)), "Draft scheme of the n draft tokens.", "iid"
)
schemes_option = _option(
    "--schemes", ListOf(click.Choice(list(SCHEMES))), "Draft schemes, comma-separated."
)


def own_option(help: str) -> Decorator:
    """Add ``--rules``, passed as a tuple of FILE.py:FUNCTION."""
    kind = ListOf(RuleFileOr(RuleFileOnly()))
    return click.option("--rules", type=kind, default=(), metavar="LIST", help=help)


own_rules_option = _option(
    "--rules",
    ListOf(RuleFileOr(RuleName())),
    'Solvers, "coupled", "likeliest", or your own rules as FILE.py:FUNCTION; comma-separated.',
)
solvers_option = _option("--solvers", _NAMES, "Solvers, comma-separated.", unset="all")

time_limit_option = _option(
    "--time-limit", POSITIVE, "Time limit of a solve or an audit, in seconds."
)
tolerance_option = _option(
    "--tolerance",
    Number(0.0, 0.01, min_open=True),
    "Maximum difference between probabilities treated as equal.",
)
paths_option = _option("--paths", _COUNT, "Number of drafted paths per round.")
length_option = _option("--length", _COUNT, "Maximum number of tokens per drafted path.")
tokens_option = _option("--tokens", _COUNT, "Number of tokens generated after each prompt.")
seed_option = _option("--seed", click.IntRange(0), "Random seed.", 0)
top_logprobs_option = click.option(
    "--top-logprobs", type=click.IntRange(1), help="Number of most likely tokens to store per row."
)
limit_option = _option("--limit", _COUNT, "Maximum number of prompts.", unset="all")
draft_cost_option = _option("--draft-cost", Number(0.0), "Cost of a draft call, in target calls.")
node_cost_option = _option(
    "--node-cost", Number(0.0), "Cost that each node adds to a target call, in target calls."
)


def jobs_option_of(unset: str) -> Decorator:
    """Add ``--jobs`` with the default None, which the help describes as `unset`."""
    return _option("--jobs", _COUNT, "Number of parallel processes.", unset=unset)()


jobs_option = jobs_option_of("1")
_SAMPLING_TOP_K = "Truncate both models to their k most likely tokens; 0 keeps all."
_SAMPLING_TOP_P = "Truncate both models to a top-p nucleus, after --sampling-top-k; 1 keeps all."
_SAMPLING_MIN_P = (
    "Keep tokens with p >= min-p times the largest p, after --sampling-top-k and --sampling-top-p; "
    "0 keeps all."
)
_top_k_of_both = _option(
    "--sampling-top-k", click.IntRange(0), _SAMPLING_TOP_K, 0, callback=_or_none(0)
)


def sampling_options_of(top_k: int, top_p: float) -> Decorator:
    """Add the truncation of both models for `Sampling`, with defaults."""
    return several(
        _top_k_of_both(top_k),
        _option("--sampling-top-p", float, _SAMPLING_TOP_P)(top_p),
        _option("--sampling-min-p", float, _SAMPLING_MIN_P)(0.0),
    )


sampling_options = sampling_options_of(0, 1.0)
"""Truncation of both models for `Sampling`: the distributions used in decoding."""
served_options = several(
    _top_k_of_both(0),
    _option("--sampling-top-p", float, _SAMPLING_TOP_P, callback=_or_none(1.0))(1.0),
    _option("--sampling-min-p", float, _SAMPLING_MIN_P, callback=_or_none(0.0))(0.0),
    click.option(
        "--whole-draft", is_flag=True, help="Apply the --sampling- options only to the target."
    ),
)
"""The same for rows of captures; values that do not truncate become None."""


def draft_temperature_option(kind: Any = float) -> Decorator:
    """Add ``--draft-temperature``; None means the temperature of the target."""
    help = "Temperature of the draft."
    return _option("--draft-temperature", kind, help, unset="same as --temperature")()


def _check_engine(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Import graph-tool if it was chosen, so that a missing engine fails before any work."""
    if value and "graph-tool" in value:
        graph_tool.load()
    return value


def engine_option(multiple: bool = False) -> Decorator:
    """Add ``--engine``, passed as a name or None, or as a tuple if `multiple`."""
    help = "Library that computes maximum flows for the solvers max-flow and slackness."
    kind = click.Choice(list(FLOW_ENGINES))
    return _option(
        "--engine", kind, help, unset="ortools", multiple=multiple, callback=_check_engine
    )()


def vocab_size_option(default: int | None, least: int = 1) -> Decorator:
    """Add ``--vocab-size`` with the minimum `least`."""
    kind = click.IntRange(least)
    return _option("--vocab-size", kind, "Vocabulary size of synthetic distributions.")(default)


def row_options(top_k: int = 0) -> Decorator:
    """Add the parameters of `Capture.distributions`."""
    return several(
        top_k_option(top_k),
        top_p_option(),
        temperature_option(),
        draft_temperature_option(),
        served_options,
    )
