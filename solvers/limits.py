"""Checks of the options that several solvers share: choices, and limits of memory and time."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from otlp.errors import Capability, InvalidInputError

__all__ = ["RULE_GAP", "check_choice", "check_memory_limit", "check_time_limit", "fits"]

RULE_GAP = 1e-4
"""Accuracy of the bound beside a rule that has none of its own: the rule itself is cheaper."""


def check_choice(option: str, value: str, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones, and suggest the nearest.

    Raises
    ------
    InvalidInputError
    """
    if value not in known:
        near = get_close_matches(str(value), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidInputError(f"{option} is {value!r}: {hint}known: {', '.join(known)}")


def check_memory_limit(value: int) -> None:
    """Refuse a memory limit that is not a positive number of bytes.

    Raises
    ------
    InvalidInputError
    """
    if not value > 0:
        raise InvalidInputError(f"memory_limit is {value!r}: it must be a positive number of bytes")


def check_time_limit(value: float | None) -> None:
    """Refuse a time limit that is neither None nor a positive number of seconds.

    Raises
    ------
    InvalidInputError
    """
    if value is not None and not value > 0.0:
        raise InvalidInputError(
            f"time_limit is {value!r}: it must be a positive number of seconds, or None"
        )


def fits(what: str, needed: float, memory_limit: int) -> Capability:
    """Whether so many bytes fit the limit, or the reason why not with the ways out."""
    if needed <= memory_limit:
        return Capability(True)
    return Capability(
        False,
        f"{what} would need {needed / 1024**2:,.0f} MiB, more than memory_limit = "
        f"{memory_limit / 1024**2:,.0f} MiB: raise it, cut the draft with top_k, or use martingale "
        "for i.i.d. drafts",
    )
