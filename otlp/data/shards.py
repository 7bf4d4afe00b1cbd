"""A capture in shards: many capture files, and an index that says which.

The names follow the convention of Hugging Face for models in shards: ``NAME-00001-of-00003
.safetensors`` and so on beside ``NAME.safetensors.index.json``, a JSON object of ``metadata`` and
``weight_map``, which gives for each tensor the file that it lies in.  So that no two tensors share
a name, those of shard i end in i: ``target_logits.00001`` has the first rows.  The metadata holds
the labels of the capture, V, the precision, how many rows each shard has, and the fingerprint of
all rows, which every shard carries too.

An index is not trusted: it can name files in its own folder only, and all that it says is compared
with the headers of the files when it is opened.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from otlp.checks import whole_number
from otlp.data.capture import Capture
from otlp.data.capture_file import (
    CaptureFile,
    columns_of,
    fingerprint,
    join_files,
    labels_of,
    open_capture_file,
    write,
)
from otlp.data.tensor_file import NUMBERS, open_file
from otlp.data.top_capture import TopCapture
from otlp.data.whole_file import whole_file, writing_to
from otlp.errors import CaptureError

INDEX = ".safetensors.index.json"
FORMAT = "otlp-capture-index-1"
MOST_INDEX = 100_000_000
"""Bytes of an index, that of some 200,000 shards."""


def index_path(path: str | os.PathLike[str]) -> Path:
    """Where the index of a capture of this name lies."""
    given = Path(path)
    return given.with_name(given.name.removesuffix(".safetensors") + INDEX)


def write_shards(capture: Capture, path: str | os.PathLike[str], shard_bytes: int) -> None:
    """Write a capture in shards of at most so many bytes of rows, one row at least.

    The index is written last: until it is there, there is no capture.

    Raises
    ------
    CaptureError
        If there is a capture of this name, or a file cannot be written; then no shard is left.
    InvalidInputError
        If `shard_bytes` is no whole number, or a row that lies in a file holds no logits.
    """
    shard_bytes = whole_number(shard_bytes, "shard_bytes")
    index = index_path(path)
    for there in (index, Path(path)):
        if there.exists():
            raise CaptureError(f"{there}: is there already; choose another name or delete it")
    columns = columns_of(capture)
    one = sum(math.prod(c.shape[1:]) * np.dtype(NUMBERS[c.kind]).itemsize for c in columns.values())
    step = max(1, shard_bytes // one)
    starts = range(0, max(len(capture), 1), step)
    stem = index.name.removesuffix(INDEX)
    names = [f"{stem}-{i:05d}-of-{len(starts):05d}.safetensors" for i in range(1, len(starts) + 1)]
    weight_map: dict[str, str] = {}
    total = 0
    paths = [index.with_name(name) for name in names]
    with writing_to(index.parent), _all_or_none(paths) as shards:
        whole = fingerprint(capture)
        for number, (shard, start) in enumerate(zip(shards, starts, strict=True), 1):
            rows = capture[start : start + step]
            with whole_file(shard) as temporary:
                write(temporary, rows, f"{number:05d}", whole=whole)
            tensors = open_capture_file(os.fspath(shard)).tensors
            weight_map |= {f"{name}.{number:05d}": shard.name for name in tensors}
            total += sum(tensor.size for tensor in tensors.values())
        metadata = {
            "format": FORMAT,
            "total_size": total,
            **_facts(capture),
            "fingerprint": whole,
            "rows": [len(capture[start : start + step]) for start in starts],
        }
        with whole_file(index) as temporary:
            content = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=1)
            temporary.write_text(content + "\n", encoding="utf-8")


def open_shards(path: str) -> Capture:
    """Open a capture by its index: only headers are read, and all are.

    Raises
    ------
    CaptureError
        If the index cannot be read or names files elsewhere, if a shard is missing or truncated,
        or if rows, V, precision or labels disagree; the message names the file.
    """
    index = Path(os.path.abspath(path))
    with open_file(os.fspath(index)) as opened:
        size = os.fstat(opened.fileno()).st_size
        content = opened.read(min(size, MOST_INDEX))
    try:
        if size > MOST_INDEX:
            raise ValueError(f"it has more than {MOST_INDEX:,} bytes")
        found = json.loads(content)
        metadata, weight_map = dict(found["metadata"]), dict(found["weight_map"])
        shards = _shards(weight_map)
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']!r}, not {FORMAT!r}")
        counts = list(metadata["rows"])
        if len(counts) != len(shards):
            raise ValueError(f"it has {len(shards)} shards, and rows for {len(counts)}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CaptureError(
            f"{path}: is no index of a capture ({type(error).__name__}: {error}); write the "
            "capture with captures.save and shard_bytes"
        ) from None
    files = []
    for (number, (name, tensors)), count in zip(shards.items(), counts, strict=True):
        shard = open_capture_file(os.fspath(index.with_name(name)))
        if shard.number != number or shard.tensors.keys() != tensors:
            raise CaptureError(
                f"{shard.path}: has other tensors than {index.name} says; it belongs to another "
                "capture"
            )
        _agree(shard, "rows", shard.rows, count, index)
        files.append(shard)
    kinds = {name: tensor.kind for name, tensor in files[0].tensors.items()}
    for file in files:
        if {name: tensor.kind for name, tensor in file.tensors.items()} != kinds:
            raise CaptureError(f"{file.path}: has tensors of other types than {files[0].path}")
        for label in file.labels:
            _agree(file, label, file.labels[label], files[0].labels[label], index)
    capture = join_files(files)
    facts = _facts(capture)
    for label, value in facts.items():
        _agree(files[0], label, value, metadata.get(label), index)
    for file in files:  # captures from before there were fingerprints have none in any file
        _agree(file, "fingerprint", file.fingerprint, metadata.get("fingerprint"), index)
    return capture


def _facts(capture: Capture) -> dict[str, Any]:
    """What an index says of a capture, beside its rows."""
    labels: dict[str, Any] = labels_of(capture)
    kept = {"kept": capture.kept} if isinstance(capture, TopCapture) else {}
    vocab_size = capture.vocab_size - len(kept)
    return {**labels, "vocab_size": vocab_size, "dtype": capture.dtype, **kept}


def _agree(shard: CaptureFile, what: str, value: object, said: object, index: Path) -> None:
    if value != said:
        raise CaptureError(
            f"{shard.path}: its {what} is {value!r:.200}, but {said!r:.200} by {index.name} and "
            "the other shards; put the files of one capture together"
        )


def _shards(weight_map: dict[str, Any]) -> dict[str, tuple[str, set[str]]]:
    """By the number of the shard, its file and its tensors."""
    shards: dict[str, tuple[str, set[str]]] = {}
    for tensor, name in weight_map.items():
        plain, _, number = tensor.rpartition(".")
        if not re.fullmatch(r"\d{5,9}", number, re.ASCII) or not isinstance(name, str):
            raise ValueError(f"{tensor!r} is no tensor of a shard, such as 'target_logits.00001'")
        if not name or name in (".", "..") or re.search(r"[/\\:\0]", name):
            raise ValueError(f"{name!r} does not lie in its folder")
        if shards.setdefault(number, (name, set()))[0] != name:
            raise ValueError(f"shard {number} lies in {shards[number][0]!r} and in {name!r}")
        shards[number][1].add(plain)
    if [int(number) for number in sorted(shards, key=int)] != list(range(1, len(shards) + 1)):
        raise ValueError("its shards are not numbered from 00001 on")
    if not shards or len({name for name, _ in shards.values()}) < len(shards):
        raise ValueError("it names no file, or one file twice")
    return {number: shards[number] for number in sorted(shards, key=int)}


@contextmanager
def _all_or_none(paths: list[Path]) -> Iterator[list[Path]]:
    """Lend paths; what was written to them goes where the block raises."""
    try:
        yield paths
    except BaseException:
        for path in paths:
            with suppress(OSError):
                path.unlink()
        raise
