"""Damaged files: changed, lost, zeroed and duplicated bytes, and full disks."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Damage = Callable[[bytes, np.random.Generator], bytes]


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(len(content))]


def others(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace some bytes by random bytes."""
    damaged = np.frombuffer(content, dtype=np.uint8).copy()
    places = rng.integers(damaged.size, size=rng.integers(1, 20))
    damaged[places] = rng.integers(256, size=places.size)
    return damaged.tobytes()


def lost(content: bytes, rng: np.random.Generator) -> bytes:
    at = rng.integers(len(content))
    return content[:at] + content[at + rng.integers(1, 200) :]


def zero(content: bytes, rng: np.random.Generator) -> bytes:
    """Set a range of bytes to zero, as after a crash."""
    at, length = rng.integers(len(content)), int(rng.integers(1, 500))
    return content[:at] + bytes(length)[: len(content) - at] + content[at + length :]


def twice(content: bytes, rng: np.random.Generator) -> bytes:
    at = rng.integers(len(content))
    return content[:at] + content[max(0, at - 50) :]


def garbage(_: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(rng.integers(200))


DAMAGES: dict[str, Damage] = {
    one.__name__: one for one in (cut, others, lost, zero, twice, garbage)
}
NOTHING = [
    b"",
    b"\n",
    b"notes",
    b"3",
    b"null",
    b"[]",
    b"[1]\n",
    b"{",
    b"{}",
    b'{"a": 1}\n',
    b"\xff",
]
NOTHING += [b"\xff\n", b"[" * 5_000, b"[" * 99_999]
"""Contents that are not a valid file of this library."""


def without_checks(path: Path) -> None:
    """Remove the checksums from a safetensors file, as in files written by other tools."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"].pop("crc32", None)
    kept = {name: one for name, one in header.items() if not name.endswith(".crc32")}
    end = max(one["data_offsets"][1] for name, one in kept.items() if name != "__metadata__")
    text = json.dumps(kept).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start : start + end])


def change_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of a safetensors file, and remove its checksums."""
    without_checks(path)
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit the file size, so that writing fails midway as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
