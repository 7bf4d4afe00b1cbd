"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otlp.errors import CaptureError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Lend a temporary name beside `path`; what was written there takes the name at the end.

    No reader ever sees half a file, and a block that raises leaves `path` as it was.  Only a
    process that is killed leaves the temporary file, a hidden one, behind.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    final = Path(path)
    temporary = final.with_name(f".{final.stem}.{secrets.token_hex(4)}{final.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, final)
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def writing_to(place: str | os.PathLike[str]) -> Iterator[None]:
    """Say in words why a capture cannot be written there."""
    try:
        yield
    except OSError as error:
        raise CaptureError(
            f"{os.fspath(place)}: cannot be written ({error.strerror}); choose a folder that "
            "exists, is writable and has room"
        ) from error


def is_temporary(name: str, path: str | os.PathLike[str]) -> bool:
    """Whether a file of this name was left behind while `path` was being written."""
    final, parts = Path(path), name.removesuffix(Path(path).suffix).rpartition(".")
    return parts[0] == f".{final.stem}" and len(parts[2]) == 8 and name.endswith(final.suffix)
