"""Atomic writes of files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG, S_IWUSR

from otlp.errors import CaptureError, OutputError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Context manager for a temporary file in the folder of `path` that is renamed at the end.

    No reader sees a partial file, and `path` is unchanged if the block raises.  Only a killed
    process leaves the hidden temporary file.  A link is kept, and the file that it points to is
    written.  An existing file keeps its mode and its owner.

    Raises
    ------
    OutputError
        If `path` is not a regular file, such as a device or a pipe, or is the standard output.
    OSError
        If the file cannot be written.
    """
    place = place_of(path)
    before = place.stat() if place.exists() else None
    mode = 0o666 if before is None else S_IMODE(before.st_mode)
    temporary = place.with_name(f".{place.stem}.{secrets.token_hex(4)}{Path(path).suffix}")
    try:
        # Create the file with the mode of `path`: who may not read `path` must not read this file.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode | S_IWUSR))
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if before is not None:
            with suppress(OSError):  # The file may belong to another user.
                os.chown(temporary, before.st_uid, before.st_gid)
            temporary.chmod(mode)
        os.replace(temporary, place)
    finally:
        with suppress(OSError):
            temporary.unlink()


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file with all links resolved; the file need not exist.

    Raises
    ------
    OutputError
        If `path` is not a regular file, or is the standard output or error of this process.
    """
    place = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if not S_ISREG(found.st_mode):
            raise OutputError(f"{os.fspath(path)!r} must be a regular file; name another file")
        if any(os.path.samestat(found, stream) for stream in _standard_streams()):
            raise OutputError(
                f"{os.fspath(path)!r} must not be the standard output or error; name another file"
            )
    return place


def _standard_streams() -> Iterator[os.stat_result]:
    """Yield the status of standard output and standard error, if open."""
    for descriptor in (1, 2):
        with suppress(OSError):
            yield os.fstat(descriptor)


def locked(opened: int) -> bool:
    """Lock an open file or folder; return whether no other process has the lock.

    The lock ends when the file is closed.  Returns True if the system or the folder does not
    support locks.
    """
    try:
        import fcntl

        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


@contextmanager
def writing_to(place: str | os.PathLike[str]) -> Iterator[None]:
    """Context manager that converts OSError to CaptureError when a capture is written."""
    try:
        yield
    except OSError as error:
        raise CaptureError(
            f"{os.fspath(place)}: cannot be written ({error.strerror or error}); choose a folder "
            "that exists, is writable and has free space"
        ) from error


def is_temporary(name: str, path: str | os.PathLike[str]) -> bool:
    """Return whether `name` is that of a temporary file of `path`."""
    final, parts = Path(path), name.removesuffix(Path(path).suffix).rpartition(".")
    return parts[0] == f".{final.stem}" and len(parts[2]) == 8 and name.endswith(final.suffix)
