"""What the commands share on the way in: types of options, blocks of options."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from otlp.data.whole_file import place_of
from otlp.drafts.by_name import SCHEMES
from otlp.errors import OTLPError, OutputError
from otlp.solvers import SOLVERS, make_solver
from otlp.solvers.engines import FLOW_ENGINES, graph_tool
from otlp.studies.canvas import file_types

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class ListOf(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A list such as 10,100, each part of one type; at least one part.

    A comma in the name of a file that is there separates nothing.
    """

    name = "list"

    def __init__(self, part: Any) -> None:
        self.part = click.types.convert_type(part)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Convert part by part."""
        if isinstance(value, tuple):
            return value
        words = list(_words(value, isinstance(self.part, OwnOr)))
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


def _words(value: str, files: bool) -> Iterator[str]:
    """What stands between commas; with those that a file's name holds, where there is one."""
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
        """The name of a solver, by any name of it; refuse what is none, and suggest the nearest."""
        try:
            return make_solver(str(value)).name
        except OTLPError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in SOLVERS if name.startswith(incomplete)]


class RuleName(SolverName):
    """The name of a solver, or of an equality with the target's draw."""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that is none."""
        from otlp.studies.compare import EQUALITIES

        return value if value in EQUALITIES else super().convert(value, param, ctx)


class NoName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """No name at all."""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse it."""
        self.fail(f"{value!r} is no rule of a file: write FILE.py:FUNCTION", param, ctx)


class OwnOr(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """FILE.py:FUNCTION, which is read later, or what another type takes."""

    def __init__(self, named: click.ParamType) -> None:  # type: ignore[type-arg, unused-ignore]
        self.named, self.name = named, named.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a file that is not there, and a name that is none."""
        file, _, function = str(value).rpartition(":")
        if not file or not function:
            return str(self.named.convert(value, param, ctx))
        if file.endswith(".py") and not Path(file).is_file():
            self.fail(f"there is no file {file}: write FILE.py:FUNCTION", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so."""
        return self.named.shell_complete(ctx, param, incomplete)


class Number(click.FloatRange):
    """A number in a range; infinity is one, NaN is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert, and refuse NaN too, which is in every range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Positive(Number):
    """A number above zero."""

    def __init__(self) -> None:
        super().__init__(min=0.0, min_open=True)


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
            folder = place_of(path).parent
            while not folder.exists():
                folder = folder.parent
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OutputError as error:
            self.fail(str(error), param, ctx)
        except (OSError, ValueError, OTLPError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.fail(f"{value!r} cannot be written: {reason}", param, ctx)
        return path


def refuse_given(names: Collection[str], why: str) -> None:
    """Refuse those options of the running command that were given; `why` begins what is said."""
    context = click.get_current_context()
    found = [
        option.opts[0]
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]
    if found:
        raise click.UsageError(f"{why}: leave out {', '.join(found)}")


def json_option(help: str) -> Decorator:
    """Add ``--json``, passed as `json_path`."""
    return click.option("--json", "json_path", type=OutputFile(), help=help, callback=_no_table)


def _no_table(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """Refuse an ending that says something else than JSON."""
    if value is not None and value.suffix.lower() in (".csv", ".tex", ".npz", ".md", ".txt"):
        raise click.BadParameter(
            f"'{value}' would hold JSON: name it .json (bench, compare, sweep and decode have "
            "--table for .csv and .tex)"
        )
    return value


table_option = click.option(
    "--table",
    "table_path",
    type=OutputFile(lambda: (".csv", ".tex")),
    help="Write means and intervals as CSV or LaTeX, by the ending.",
)


def figure_option(help: str) -> Decorator:
    """Add ``--figure``, passed as `figure_path`."""
    kind = OutputFile(file_types)
    return click.option("--figure", "figure_path", type=kind, help=f"{help} Needs matplotlib.")


journal_option = click.option(
    "--journal",
    type=OutputFile(),
    help="Keep what is finished here; the same command goes on from it, and adds what it lacks.",
)


def _option(
    flag: str, part: Any, help: str, usual: Any = None, unset: str = "", **more: Any
) -> Callable[..., Decorator]:
    """An option that commands add with a default of their own.

    A default that is a string, such as 1,2,4, makes it a list; `unset` says what None means.
    """

    def with_default(default: Any = usual) -> Decorator:
        listed = isinstance(default, str) and not isinstance(part, ListOf | click.Choice)
        kind = ListOf(part) if listed else part
        shown = unset if default is None and unset else True
        return click.option(flag, type=kind, default=default, show_default=shown, help=help, **more)

    return with_default


def _or_none(nothing: object) -> Callable[[Any, Any, Any], Any]:
    """A callback: None for the value that cuts nothing."""

    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(None if one == nothing else one for one in value)
        return None if value == nothing else value

    return callback


def several(*options: Decorator) -> Decorator:
    """Add some options, in the order in which help shows them."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


_COUNT, _NAMES = click.IntRange(1), ListOf(SolverName())


row_option = _option("--row", int, "Which row of the capture.", 0)
rows_option = _option(
    "--rows",
    _COUNT,
    "How many rows, one drawn from each of so many equal stretches of the capture.",
    unset="all",
)
n_option = _option("--n", _COUNT, "Number of drafts.")
temperature_option = _option("--temperature", float, "Temperature of both models.", 1.0)
top_k_option = _option(
    "--top-k",
    click.IntRange(0),
    "Cut the draft to its k most likely tokens; 0 keeps all.",
    0,
    callback=_or_none(0),
)
_TOP_P = "Cut the draft to its top-p nucleus; 1 keeps all."
top_p_option = _option("--top-p", float, _TOP_P, 1.0, callback=_or_none(1.0))
scheme_option = _option(
    "--scheme", click.Choice(list(SCHEMES)), "How the n tokens are drafted.", "iid"
)
schemes_option = _option(
    "--schemes", ListOf(click.Choice(list(SCHEMES))), "How the n tokens are drafted, each in turn."
)


def own_option(help: str) -> Decorator:
    """Add ``--rules``, passed as a tuple of rules of files."""
    kind = ListOf(OwnOr(NoName()))
    return click.option("--rules", type=kind, default=(), metavar="LIST", help=help)


own_rules_option = _option(
    "--rules",
    ListOf(OwnOr(RuleName())),
    "Solvers by their names, coupled and likeliest, and rules of yours as FILE.py:FUNCTION.",
)
solvers_option = _option("--solvers", _NAMES, "Solvers by their names.", unset="all")

time_limit_option = _option(
    "--time-limit", Positive(), "Seconds after which a solve, or an audit, is ended."
)
tolerance_option = _option(
    "--tolerance", Positive(), "The largest difference of probabilities that counts as none."
)
paths_option = _option("--paths", _COUNT, "Drafted paths a round.")
length_option = _option("--length", _COUNT, "Tokens of a drafted path, at most.")
tokens_option = _option("--tokens", _COUNT, "Tokens written after each prompt.")
seed_option = _option("--seed", click.IntRange(0), "Seed of random numbers.", 0)
limit_option = _option("--limit", _COUNT, "How many prompts.", unset="all")
draft_cost_option = _option("--draft-cost", Number(0.0), "A draft call, in target calls.")
node_cost_option = _option(
    "--node-cost", Number(0.0), "What a node adds to a target call, likewise."
)


def jobs_option_of(unset: str) -> Decorator:
    """Add ``--jobs``, None where it is left out; `unset` says what that means."""
    return _option("--jobs", _COUNT, "Processes at a time on this machine.", unset=unset)()


jobs_option = jobs_option_of("1")
_SAMPLING_TOP_K = "Cut both models to their k most likely tokens; 0 keeps all."
_SAMPLING_TOP_P = "Then cut both to their top-p nucleus; 1 keeps all."
_SAMPLING_MIN_P = "Then keep tokens at least so likely, as a share of the likeliest; 0 keeps all."
_top_k_of_both = _option(
    "--sampling-top-k", click.IntRange(0), _SAMPLING_TOP_K, 0, callback=_or_none(0)
)


def sampling_options_of(top_k: int, top_p: float) -> Decorator:
    """Add the cuts of both models for `Sampling`, with defaults."""
    return several(
        _top_k_of_both(top_k),
        _option("--sampling-top-p", float, _SAMPLING_TOP_P)(top_p),
        _option("--sampling-min-p", float, _SAMPLING_MIN_P)(0.0),
    )


sampling_options = sampling_options_of(0, 1.0)
"""The cuts of both models: the distribution that is decoded from, for `Sampling`."""
served_options = several(
    _top_k_of_both(0),
    _option("--sampling-top-p", float, _SAMPLING_TOP_P, callback=_or_none(1.0))(1.0),
    _option("--sampling-min-p", float, _SAMPLING_MIN_P, callback=_or_none(0.0))(0.0),
    click.option(
        "--whole-draft", is_flag=True, help="Cut the target alone by the --sampling- options."
    ),
)
"""The same for rows of captures, None for what cuts nothing."""


def draft_temperature_option(kind: Any = float) -> Decorator:
    """Add ``--draft-temperature``, None where it is that of both."""
    help = "Temperature of the draft alone."
    return _option("--draft-temperature", kind, help, unset="that of both")()


def _there(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Look for an engine before any work."""
    if value and "graph-tool" in value:
        graph_tool.load()
    return value


def engine_option(multiple: bool = False) -> Decorator:
    """Add ``--engine``, passed as a name or None, or as a tuple where it may be repeated."""
    help = "Who finds the maximum flows of max-flow and slackness."
    kind = click.Choice(list(FLOW_ENGINES))
    return _option("--engine", kind, help, unset="ortools", multiple=multiple, callback=_there)()


def vocab_size_option(default: int | None, least: int = 1) -> Decorator:
    """Add ``--vocab-size``, at least `least`."""
    return _option("--vocab-size", click.IntRange(least), "Tokens of made-up distributions.")(
        default
    )


def row_options(top_k: int = 0) -> Decorator:
    """Add the options that turn a row of logits into distributions, for `Capture.distributions`."""
    return several(
        top_k_option(top_k),
        top_p_option(),
        temperature_option(),
        draft_temperature_option(),
        served_options,
    )
