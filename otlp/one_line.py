"""Messages and values of foreign code on one line of text."""

from __future__ import annotations

from otlp.errors import OTLPError, clean

LONGEST_MESSAGE = 160
"""Maximum number of characters kept of a message or repr."""


def one_line(thing: object) -> str:
    """Return the first line of the message or repr of an object, without control characters.

    The line is truncated after a word at `LONGEST_MESSAGE`, except for this library's errors.
    """
    try:
        text = str(thing) if isinstance(thing, BaseException) else repr(thing)
    except Exception:
        return f"a {type(thing).__name__}"
    first = next(iter(text.splitlines()), "")
    if len(first) > LONGEST_MESSAGE and not isinstance(thing, OTLPError):
        kept = first[: LONGEST_MESSAGE - 4]
        first = (kept[: kept.rfind(" ")] if " " in kept else kept) + " ..."
    return clean(first)
