"""The text that the trained pair learns from: Python's standard library, and what is held out."""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from pathlib import Path

# Tests are absent from many distributions of Python, and `encodings` is tables rather than text:
# without both the corpus is the same everywhere that the Python version is.
EXCLUDED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "encodings"}
)
# One file in twenty is held out; the hash depends on nothing but the file's relative path.
HELD_OUT_MODULUS = 20


def standard_library() -> Path:
    """Return the folder that holds the standard library's sources."""
    return Path(sysconfig.get_path("stdlib"))


def corpus_files(root: Path) -> list[Path]:
    """Return the sources under `root`, relative to it, in a fixed order."""
    relative = (path.relative_to(root) for path in root.rglob("*.py"))
    return sorted(path for path in relative if EXCLUDED_FOLDERS.isdisjoint(path.parts[:-1]))


def is_held_out(path: Path) -> bool:
    """Say whether the file at this relative path is kept from the training."""
    digest = hashlib.sha256(path.as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_MODULUS == 0


def read_source(path: Path) -> str:
    """Read a source file in the encoding that it declares."""
    with tokenize.open(path) as stream:
        return stream.read()
