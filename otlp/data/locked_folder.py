"""Folders that only one process at a time writes to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otlp.data.whole_file import locked


@contextmanager
def locked_folder(folder: Path, refusal: Callable[[OSError], Exception]) -> Iterator[None]:
    """Create and lock a folder, and remove the folder at the end if it is empty.

    Parameters
    ----------
    folder : Path
    refusal : callable
        Maps an OSError to the exception to raise: BlockingIOError if another process has the lock,
        or the error if the folder cannot be created or opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise refusal(error) from error
    try:
        if not _has_lock(folder, opened):
            raise refusal(BlockingIOError())
        try:
            yield
        finally:
            with suppress(OSError):  # The folder is not empty.
                folder.rmdir()
    finally:
        os.close(opened)


def _has_lock(folder: Path, opened: int) -> bool:
    with suppress(FileNotFoundError):  # Another process finished and removed the folder.
        return locked(opened) and os.path.samestat(os.fstat(opened), os.stat(folder))
    return False
