"""Training text of the trained pair: Python's standard library without held-out files."""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from pathlib import Path

# Tests are missing in many distributions of Python, and `encodings` consists of tables: without
# both, the corpus depends only on the Python version.
EXCLUDED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "encodings"}
)
# One file in twenty is held out; the hash depends only on the file's relative path.
HELD_OUT_MODULUS = 20


def standard_library() -> Path:
    """Return the folder that holds the standard library's sources."""
    return Path(sysconfig.get_path("stdlib"))


def corpus_files(root: Path) -> list[Path]:
    """Return the sources under `root`, relative to it, in a fixed order."""
    relative = (path.relative_to(root) for path in root.rglob("*.py"))
    return sorted(path for path in relative if EXCLUDED_FOLDERS.isdisjoint(path.parts[:-1]))


def is_held_out(path: Path) -> bool:
    """Return whether the file at this relative path is held out."""
    digest = hashlib.sha256(path.as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_MODULUS == 0


def read_source(path: Path) -> str:
    """Read a source file in its declared encoding."""
    with tokenize.open(path) as stream:
        return stream.read()
