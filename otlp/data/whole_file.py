"""Atomic writes: files are written whole or not at all."""

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
    """Lend a temporary file beside `path`; what was written there takes the name at the end.

    No reader ever sees half a file, and a block that raises leaves `path` as it was.  Only a
    process that is killed leaves the temporary file, a hidden one, behind.  A link stays one: the
    file that it leads to is written.  A file that is there already keeps its mode and its owner.

    Raises
    ------
    OutputError
        If `path` is no ordinary file, such as a device, a pipe or where standard output goes to.
    OSError
        If the file cannot be written.
    """
    place = place_of(path)
    before = place.stat() if place.exists() else None
    mode = 0o666 if before is None else S_IMODE(before.st_mode)
    temporary = place.with_name(f".{place.stem}.{secrets.token_hex(4)}{Path(path).suffix}")
    try:
        # nobody reads there what may not be read here
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode | S_IWUSR))
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if before is not None:
            with suppress(OSError):  # another's file in a shared folder
                os.chown(temporary, before.st_uid, before.st_gid)
            temporary.chmod(mode)
        os.replace(temporary, place)
    finally:
        with suppress(OSError):
            temporary.unlink()


def place_of(path: str | os.PathLike[str]) -> Path:
    """Where a file of this name lies, or will lie: behind all links.

    Raises
    ------
    OutputError
        If something else than an ordinary file is there, or what this process prints into.
    """
    place = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if not S_ISREG(found.st_mode):
            raise OutputError(f"{os.fspath(path)!r} is no ordinary file: name another")
        if any(os.path.samestat(found, printed) for printed in _printed_to()):
            raise OutputError(f"{os.fspath(path)!r} is what is printed to: name another file")
    return place


def _printed_to() -> Iterator[os.stat_result]:
    """The files behind standard output and standard error, where these are open."""
    for descriptor in (1, 2):
        with suppress(OSError):
            yield os.fstat(descriptor)


def locked(opened: int) -> bool:
    """Whether nobody else holds the lock of an open file or folder, which is then held here.

    It goes when what is open is closed.  Where the system, or the folder, has no locks, nobody
    holds any.
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
    """Say in words why a capture cannot be written there."""
    try:
        yield
    except OSError as error:
        raise CaptureError(
            f"{os.fspath(place)}: cannot be written ({error.strerror or error}); choose a folder "
            "that exists, is writable and has room"
        ) from error


def is_temporary(name: str, path: str | os.PathLike[str]) -> bool:
    """Whether a file of this name was left behind while `path` was being written."""
    final, parts = Path(path), name.removesuffix(Path(path).suffix).rpartition(".")
    return parts[0] == f".{final.stem}" and len(parts[2]) == 8 and name.endswith(final.suffix)
