"""JSON files of dataclasses with a format name."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from otlp.checks import is_a
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class JsonFile:
    """Base class of dataclasses with a field `sampling` that are stored as JSON files."""

    format: ClassVar[str]
    """Name of the format."""

    refusal: ClassVar[str]
    """Error message for other text, with a placeholder ``{reason}``."""

    def to_json(self) -> str:
        """Return the fields as JSON text, with the name of the format."""
        return json.dumps({"format": self.format, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`.

        Raises
        ------
        InvalidInputError
            If `text` has another format, or a value is out of range.
        """
        try:
            found = json.loads(text)
            is_a(found, dict, "the content")
            if (form := found.pop("format", "none")) != cls.format:
                reason = f"has the format {form!s:.60}, not {cls.format}"
                raise InvalidInputError(cls.refusal.format(reason=reason))
            return cls._of(found | {"sampling": Sampling(**found["sampling"])})
        except InvalidInputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error!s:.100}"
            raise InvalidInputError(cls.refusal.format(reason=reason)) from error

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Self:
        """Return the object with the entries of a JSON file."""
        return cls(**found)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a JSON file, with or without a byte order mark.

        Raises
        ------
        InvalidInputError
            If the file cannot be read, or has another format; the message names the file.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidInputError(f"cannot read {path!s:.200}: {reason}") from error
        try:
            return cls.from_json(text)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path!s:.200}: {error}") from error
