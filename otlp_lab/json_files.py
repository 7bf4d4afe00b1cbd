"""Small values that are kept as JSON files: what says which format they are, and how they fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from otlp.checks import is_a
from otlp.errors import InvalidInputError

Value = TypeVar("Value")


def to_json(value: Any, kind: str) -> str:
    """Write a dataclass as JSON, with the name of its format."""
    return json.dumps({"format": kind, **asdict(value)}, indent=1) + "\n"


def from_json(text: str, kind: str, make: Callable[[dict[str, Any]], Value], refusal: str) -> Value:
    """Read what `to_json` wrote.

    Parameters
    ----------
    text : str
    kind : str
        The name of the format.
    make : callable
        From the entries to the value.
    refusal : str
        What to say of something else, with a place for the ``{reason}``.

    Raises
    ------
    InvalidInputError
        If it is something else, or a value is out of its range.
    """
    try:
        found = json.loads(text)
        is_a(found, dict, "what was read")
        if found.pop("format", None) != kind:
            raise KeyError("format")
        return make(found)
    except InvalidInputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error!s:.100}"
        raise InvalidInputError(refusal.format(reason=reason)) from error


def read_as(read: Callable[[str], Value], path: str | os.PathLike[str]) -> Value:
    """Read a text file, without the byte order mark that it may begin with, by a function.

    Raises
    ------
    InvalidInputError
        If it cannot be read, or is not what the function reads; names the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(f"cannot read {path!s:.200}: {reason}") from error
    try:
        return read(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path!s:.200}: {error}") from error
