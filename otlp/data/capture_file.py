"""A capture in one safetensors file: which tensors and labels it has.

There are two layouts.  `FORMAT` keeps the texts before the rows in the metadata, and is what any
tool can write.  `LARGE` keeps them as tensors, so that they need not be read with the header; its
tensors may be those of a `TopCapture`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.data.capture import LABELS, Capture
from otlp.data.columns import check_logits
from otlp.data.stored_rows import FileTexts, StoredRows, StoredTexts
from otlp.data.tensor_file import (
    FileTensor,
    NewTensor,
    open_file,
    read_header,
    write_tensors,
)
from otlp.data.top_capture import TopCapture
from otlp.data.top_rows import TopRows, check_rows
from otlp.errors import CaptureError, InvalidInputError, OTLPError

FORMAT, LARGE = "otlp-capture-1", "otlp-capture-2"

PRECISIONS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}

FLOATS, INTEGERS = tuple(PRECISIONS), ("I32", "I64")
NUMBERS = {"positions": ("I64",), "next_tokens": ("I64",)}
WHOLE = {"target_logits": FLOATS, "draft_logits": FLOATS, **NUMBERS}
TOP = {
    f"{model}_{name}": kinds
    for model in ("target", "draft")
    for name, kinds in (("ids", INTEGERS), ("logprobs", ("F32",)), ("rest", ("F32",)))
} | NUMBERS
TEXTS = {"contexts": ("U8",), "context_ends": ("I64",)}
PIECE = 2**24
"""Bytes that are written at a time, or one row."""


@dataclass(frozen=True, eq=False)
class CaptureFile:
    """What the header of a capture file says.

    Attributes
    ----------
    path : str
    labels : dict
        Of the labels of a capture, ``synthetic`` and, for a `TopCapture`, ``vocab_size``.
    tensors : dict
        By name.
    contexts : tuple of str, or None
        None if they are tensors.
    """

    path: str
    labels: dict[str, str]
    tensors: dict[str, FileTensor]
    contexts: tuple[str, ...] | None

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return self.tensors["positions"].shape[0] if self.tensors["positions"].shape else 0


def open_capture_file(path: str) -> CaptureFile:
    """Read and check a header.

    Raises
    ------
    CaptureError
        If the file cannot be read, is truncated, or is no capture.
    """
    with open_file(path) as file:
        header = read_header(path, file)
    return _parse(path, header.metadata, header.tensors)


def read_capture_file(path: str, most: int) -> Capture:
    """Read a capture into memory and check every value; larger than `most` bytes, open it only.

    The file is opened once, so it is one file that is read, even if another takes its name.

    Raises
    ------
    CaptureError
        If the file cannot be read, is truncated, or is no capture.
    """
    with open_file(path) as file:
        header = read_header(path, file)
        found = _parse(path, header.metadata, header.tensors)
        size = found.tensors["positions"].stamp[0]
        if size > most:
            return join_files([found])
        content = header.content + file.read()
    if len(content) != size:
        raise CaptureError(f"{path}: was cut while it was read; copy or write it again")
    tensors = {name: replace(tensor, content=content) for name, tensor in found.tensors.items()}
    return join_files([replace(found, tensors=tensors)], in_memory=True)


def join_files(files: Sequence[CaptureFile], in_memory: bool = False) -> Capture:
    """Make one capture of files, whose rows stay there; their labels are those of the first.

    Parameters
    ----------
    files : sequence of CaptureFile
        At least one.
    in_memory : bool
        Read all rows and texts.

    Raises
    ------
    CaptureError
        If shapes or types do not fit together.
    """
    first = files[0]
    names = [name for name in first.tensors if name not in TEXTS]
    for file in files:
        for name in names:
            shape, wanted = file.tensors[name].shape, first.tensors[name].shape[1:]
            if shape != (file.rows, *wanted):
                raise CaptureError(
                    f"{file.path}: its {name} has shape {shape} and must have "
                    f"{(file.rows, *wanted)}, as its positions and {first.path} say; write it again"
                )
    columns: dict[str, Any] = {
        name: StoredRows.of(file.tensors[name] for file in files) for name in names
    }
    if in_memory:
        columns = {name: np.asarray(column) for name, column in columns.items()}
    contexts: tuple[str, ...] | StoredTexts
    if not in_memory and all(file.contexts is None for file in files):
        contexts = StoredTexts.of(
            FileTexts(file.tensors["context_ends"], file.tensors["contexts"]) for file in files
        )
    else:
        contexts = tuple(text for file in files for text in _contexts(file))
    kinds = {file.tensors["target_logits"].kind for file in files if "target_logits" in names}
    return _made(
        first, columns, contexts, PRECISIONS[kinds.pop()] if len(kinds) == 1 else "float32"
    )


def write(path: Path, capture: Capture, layout: str = LARGE) -> None:
    """Write a capture to a new file, piece by piece.

    Raises
    ------
    OSError
        If it cannot be written.
    InvalidInputError
        If rows that lie in files are no logits.
    """
    metadata = {label: getattr(capture, label) for label in LABELS}
    metadata |= {"format": layout, "synthetic": "true" if capture.synthetic else "false"}
    if isinstance(capture, TopCapture):
        metadata["vocab_size"] = str(capture.vocab_size - 1)
    columns = _columns(capture)
    if layout == LARGE:
        columns = _texts(capture) | columns
    else:
        metadata["contexts"] = json.dumps(tuple(capture.contexts))
    write_tensors(path, columns, metadata)


def _columns(capture: Capture) -> dict[str, NewTensor]:
    """The columns of a capture, but for the texts."""
    columns = {
        name: NewTensor("I64", (len(capture),), _pieces(getattr(capture, name), 8))
        for name in ("positions", "next_tokens")
    }
    kind = {name: kind for kind, name in PRECISIONS.items()}[capture.dtype]
    for name in ("target_logits", "draft_logits"):
        logits = getattr(capture, name)
        if isinstance(logits, TopRows):
            model = name.removesuffix("_logits")
            shape, row_bytes = (len(capture), logits.k), 4 * logits.k
            columns |= {
                f"{model}_ids": NewTensor("I32", shape, _ids(logits, row_bytes)),
                f"{model}_logprobs": NewTensor("F32", shape, _pieces(logits.logprobs, row_bytes)),
                f"{model}_rest": NewTensor("F32", shape[:1], _pieces(logits.rest, 4)),
            }
        else:
            pieces = _pieces(logits, 4 * capture.vocab_size, name)
            columns[name] = NewTensor(kind, logits.shape, pieces)
    return columns


def _parse(path: str, metadata: Mapping[str, str], tensors: dict[str, FileTensor]) -> CaptureFile:
    layout = metadata.get("format")
    if layout not in (FORMAT, LARGE):
        raise CaptureError(
            f"{path}: a safetensors file, but its metadata has format {layout!r} instead of "
            f"{FORMAT!r} or {LARGE!r}; write it with captures.save"
        )
    top = layout == LARGE and "target_ids" in tensors
    expected = (TOP if top else WHOLE) | (TEXTS if layout == LARGE else {})
    labels = [*LABELS, "synthetic", *(["vocab_size"] if top else [])]
    if layout == FORMAT:
        labels.append("contexts")
    absent = sorted((expected.keys() - tensors.keys()) | (set(labels) - metadata.keys()))
    if absent or metadata["synthetic"] not in ("true", "false"):
        missing = ", ".join(absent) or "synthetic, as true or false"
        raise CaptureError(f"{path}: lacks {missing}; write it with captures.save")
    for name, tensor in tensors.items():
        if name not in expected or tensor.kind not in expected[name]:
            raise CaptureError(
                f"{path}: its tensor {name!r} of type {tensor.kind} is no part of a capture, which "
                f"has {_described(expected)}; write it with captures.save"
            )
    for name in TEXTS.keys() & tensors.keys():
        if len(tensors[name].shape) != 1:
            raise CaptureError(
                f"{path}: its tensor {name!r} has shape {tensors[name].shape}: it must have one "
                "axis; write it with captures.save"
            )
    kinds = {tensors[name].kind for name in ("target_logits", "draft_logits") if name in tensors}
    if len(kinds) > 1:
        raise CaptureError(
            f"{path}: target_logits is {tensors['target_logits'].kind} and draft_logits "
            f"{tensors['draft_logits'].kind}; store both in one precision"
        )
    contexts = None
    if layout == FORMAT:
        try:
            contexts = _listed(metadata["contexts"])
        except (ValueError, RecursionError) as error:
            raise CaptureError(
                f"{path}: holds values that are no capture: {error}; capture the rows again"
            ) from error
    kept = {label: metadata[label] for label in labels if label != "contexts"}
    return CaptureFile(path, kept, tensors, contexts)


def _described(expected: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{name} ({' or '.join(kinds)})" for name, kinds in expected.items())


def _made(
    file: CaptureFile,
    columns: Mapping[str, Any],
    contexts: tuple[str, ...] | StoredTexts,
    dtype: str,
) -> Capture:
    given: dict[str, Any] = dict(columns)
    given |= {label: file.labels[label] for label in LABELS}
    given |= {"synthetic": file.labels["synthetic"] == "true", "contexts": contexts}
    try:
        if "target_ids" not in given:
            return Capture(**given, dtype=dtype)
        vocab_size = int(file.labels["vocab_size"])
        for model in ("target", "draft"):
            ids, logprobs, rest = (given.pop(f"{model}_{x}") for x in ("ids", "logprobs", "rest"))
            given[f"{model}_logits"] = TopRows(ids, logprobs, rest, vocab_size)
        return TopCapture(**given)
    except (OTLPError, ValueError, RecursionError) as error:
        raise CaptureError(
            f"{file.path}: holds values that are no capture: {error}; capture the rows again"
        ) from error


def _contexts(file: CaptureFile) -> Sequence[str]:
    if file.contexts is not None:
        return file.contexts
    return tuple(
        StoredTexts.of([FileTexts(file.tensors["context_ends"], file.tensors["contexts"])])
    )


def _listed(text: str) -> tuple[str, ...]:
    contexts = json.loads(text)
    if not isinstance(contexts, list) or not all(isinstance(item, str) for item in contexts):
        raise InvalidInputError("contexts must be a JSON list of strings")
    return tuple(contexts)


def _texts(capture: Capture) -> dict[str, NewTensor]:
    ends = np.cumsum(
        [len(text.encode("utf-8", "surrogatepass")) for text in capture.contexts], dtype=np.int64
    )
    content = (
        np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) for text in capture.contexts
    )
    return {
        "context_ends": NewTensor("I64", ends.shape, [ends]),
        "contexts": NewTensor("U8", (int(ends[-1]) if ends.size else 0,), content),
    }


def _pieces(column: Any, row_bytes: int, name: str = "") -> Iterator[npt.NDArray[Any]]:
    """Pieces of a column; of logits, which have a name, checked where they come from a file."""
    step = max(1, PIECE // row_bytes)
    for start in range(0, column.shape[0], step):
        part = column[start : start + step]
        piece = np.asarray(part)
        if name and isinstance(part, StoredRows):
            check_logits(piece, name, part.where)
        yield piece


def _ids(rows: TopRows, row_bytes: int) -> Iterator[npt.NDArray[Any]]:
    """Pieces of ids, checked with all else of their rows where these come from a file."""
    start = 0
    for piece in _pieces(rows.ids, row_bytes):
        part = rows[start : start + len(piece)]
        if isinstance(rows.ids, StoredRows):
            logprobs, rest = np.asarray(part.logprobs), np.asarray(part.rest)
            check_rows(piece, logprobs, rest, rows.vocab_size, part.where)
        yield piece
        start += len(piece)
