"""Checks of the options of solvers, in one place: numbers, counts, choices, memory and time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from difflib import get_close_matches
from numbers import Integral, Real

from otlp.errors import InvalidInputError

MOST = sys.float_info.max


def check_choice(option: str, value: object, known: Collection[str]) -> None:
    """Refuse what is not among the known names, and suggest the nearest.

    Raises
    ------
    InvalidInputError
    """
    if not (isinstance(value, str) and value in known):
        near = get_close_matches(str(value), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidInputError(f"{option} is {value!r}: {hint}known: {', '.join(known)}")


def check_number(option: str, value: object, valid: Callable[[float], bool], must: str) -> None:
    """Refuse what is no real number, or none that is valid.

    Raises
    ------
    InvalidInputError
        "<option> is <value>: it must <must>".
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(value, int) and abs(value) > MOST:
        raise InvalidInputError(f"{option} is a whole number beyond {MOST:g}: it must {must}")
    if not (number and valid(value)):  # type: ignore[arg-type]
        raise InvalidInputError(f"{option} is {value!r}: it must {must}")


def check_count(option: str, value: object, least: int) -> None:
    """Refuse what is no whole number of at least `least`.

    Raises
    ------
    InvalidInputError
    """
    whole = isinstance(value, Integral)
    check_number(
        option, value, lambda count: whole and count >= least, f"be a whole number >= {least}"
    )


def check_memory_limit(value: object) -> None:
    """Refuse a memory limit that is not a positive number of bytes.

    Raises
    ------
    InvalidInputError
    """
    check_number("memory_limit", value, lambda size: size > 0, "be a positive number of bytes")


def check_time_limit(value: object) -> None:
    """Refuse a time limit that is neither None nor a positive number of seconds.

    Raises
    ------
    InvalidInputError
    """
    if value is not None:
        must = "be a positive number of seconds, or None"
        check_number("time_limit", value, lambda seconds: seconds > 0.0, must)
