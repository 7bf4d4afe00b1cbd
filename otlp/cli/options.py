"""What the commands share on the way in: the capture and how its rows become problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from otlp.data.captures import Capture, builtin, load
from otlp.problem import Problem
from otlp.studies.compare import SCHEMES, make_scheme

__all__ = [
    "capture_argument",
    "integers",
    "names",
    "open_capture",
    "problem",
    "row_options",
    "scheme_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def integers(least: int) -> Callable[[click.Context, click.Parameter, str], tuple[int, ...]]:
    """Callback that parses "10,100" to (10, 100), whole numbers of at least `least`."""

    def parse(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
        try:
            numbers = tuple(int(part) for part in value.split(","))
        except ValueError:
            raise click.BadParameter(
                f"{value!r} is not a list of whole numbers such as 10,100"
            ) from None
        if min(numbers) < least:
            raise click.BadParameter(f"{min(numbers)} is too small: at least {least}")
        return numbers

    return parse


def names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Callback that parses "a,b" to ("a", "b")."""
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def capture_argument(command: Command) -> Command:
    """Add the CAPTURE argument; without it the built-in capture is used."""
    decorated: Command = click.argument("capture", required=False, type=click.Path())(command)
    return decorated


def open_capture(path: str | None) -> Capture:
    """Load a capture, the built-in one by default."""
    return builtin() if path is None else load(path)


def row_options(command: Command) -> Command:
    """Add the options that turn a row of logits into distributions."""
    for option in (
        click.option(
            "--draft-temperature", type=float, help="Draft temperature [default: the target's]."
        ),
        click.option("--temperature", type=float, default=1.0, show_default=True),
        click.option("--top-p", type=float, help="Cut the draft to the top-p nucleus."),
    ):
        command = option(command)
    return command


def scheme_option(command: Command) -> Command:
    """Add the option that says how the tokens are drafted."""
    decorated: Command = click.option(
        "--scheme",
        type=click.Choice(list(SCHEMES)),
        default="iid",
        show_default=True,
        help="How the n tokens are drafted.",
    )(command)
    return decorated


def problem(
    capture: Capture,
    row: int,
    n: int,
    *,
    top_k: int | None,
    top_p: float | None = None,
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    scheme: str = "iid",
) -> Problem:
    """Build the OTLP of one row."""
    target, draft = capture.distributions(
        row,
        temperature=temperature,
        draft_temperature=draft_temperature,
        top_k=top_k,
        top_p=top_p,
    )
    return Problem(target, make_scheme(scheme, draft, n))
