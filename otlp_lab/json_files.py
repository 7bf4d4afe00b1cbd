"""JSON files of dataclasses with a format name."""

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
    """Return a dataclass as JSON text, with the name of its format."""
    return json.dumps({"format": kind, **asdict(value)}, indent=1) + "\n"


def from_json(text: str, kind: str, make: Callable[[dict[str, Any]], Value], refusal: str) -> Value:
    """Parse the output of `to_json`.

    Parameters
    ----------
    text : str
    kind : str
        Name of the format.
    make : callable
        Maps the dict of entries to the value.
    refusal : str
        Error message for other text, with a placeholder ``{reason}``.

    Raises
    ------
    InvalidInputError
        If `text` has another format, or a value is out of range.
    """
    try:
        found = json.loads(text)
        is_a(found, dict, "the content")
        if found.pop("format", None) != kind:
            raise KeyError("format")
        return make(found)
    except InvalidInputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error!s:.100}"
        raise InvalidInputError(refusal.format(reason=reason)) from error


def read_as(read: Callable[[str], Value], path: str | os.PathLike[str]) -> Value:
    """Read a text file without its byte order mark, and parse it with `read`.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or `read` rejects its text; the message names the file.
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
