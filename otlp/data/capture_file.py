"""Layout of a capture in a safetensors file: tensors and labels.

The texts before the rows are tensors, so that the header can be read without them.  Rows are whole,
or those of a `TopCapture`.  For whole rows a simpler layout, `SIMPLE`, can also be read: its texts
are a label, so that any tool can write it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.data.capture import LABELS, Capture
from otlp.data.columns import check_logits
from otlp.data.pairs import SUPPORTED
from otlp.data.stored_rows import StoredRows, StoredTexts
from otlp.data.tensor_file import FileTensor, NewTensor, open_file, read_header, write_tensors
from otlp.data.top_capture import TopCapture
from otlp.data.top_rows import TopRows, check_rows
from otlp.errors import CaptureError, OTLPError

FORMAT, SIMPLE = "otlp-capture-2", "otlp-capture-1"

PRECISIONS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}

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
"""Maximum number of bytes per write, or one row."""


def read_capture_file(path: str, most: int) -> Capture:
    """Read and check a capture; if the file is larger than `most` bytes, only open it.

    The file is opened once, so a file that replaces it meanwhile is not read.

    Raises
    ------
    CaptureError
        If the file cannot be read, is truncated, or is not a capture.
    """
    with open_file(path) as file:
        start = file.read(9)
        file.seek(0)
        if start and not start.endswith(b"{"):
            raise CaptureError(f"{path}: the type of this file is not supported; {SUPPORTED}")
        metadata, tensors = read_header(path, file)
        _check_layout(path, metadata, tensors)
        size = tensors["positions"].stamp[0]
        content = None
        if size <= most:
            file.seek(0)
            content = file.read()
    if content is not None:
        if len(content) != size:
            raise CaptureError(f"{path}: was truncated during reading; copy or write it again")
        tensors = {name: tensor.in_memory(content) for name, tensor in tensors.items()}
    columns: dict[str, Any] = {
        name: StoredRows(range(tensor.shape[0]), tensor)
        for name, tensor in tensors.items()
        if name not in TEXTS
    }
    contexts: Sequence[str]
    if metadata["format"] == SIMPLE:
        contexts = _parse_contexts(path, metadata["contexts"])
    else:
        ends = tensors["context_ends"]
        contexts = StoredTexts(range(ends.shape[0]), ends, tensors["contexts"])
    if content is not None:
        columns = {name: np.asarray(column) for name, column in columns.items()}
        contexts = tuple(contexts)
    given = columns | {label: metadata[label] for label in LABELS}
    given |= {"synthetic": metadata["synthetic"] == "true", "contexts": contexts}
    try:
        if "target_logits" in given:
            return Capture(**given, dtype=PRECISIONS[tensors["target_logits"].kind])
        vocab_size = int(metadata["vocab_size"])
        for model in ("target", "draft"):
            ids, logprobs, rest = (given.pop(f"{model}_{x}") for x in ("ids", "logprobs", "rest"))
            given[f"{model}_logits"] = TopRows(ids, logprobs, rest, vocab_size)
        return TopCapture(**given)
    except (OTLPError, ValueError) as error:
        raise _invalid_capture(path, error) from error


def write(path: Path, parts: Sequence[Capture]) -> None:
    """Concatenate captures of equal type in a new file, piece by piece.

    The labels are those of the first capture; if the precisions differ, logits become float32.

    Raises
    ------
    OSError
        If the file cannot be written.
    InvalidInputError
        If a row read from a file is invalid.
    """
    first = parts[0]
    metadata = {label: getattr(first, label) for label in LABELS}
    metadata |= {"format": FORMAT, "synthetic": "true" if first.synthetic else "false"}
    if isinstance(first, TopCapture):
        metadata["vocab_size"] = str(first.vocab_size - 1)
    write_tensors(path, _texts(parts) | _columns(parts), metadata)


def _columns(parts: Sequence[Capture]) -> dict[str, NewTensor]:
    """Return the columns of captures, except the texts."""
    rows = sum(map(len, parts))
    columns = {
        name: NewTensor("I64", (rows,), _pieces([getattr(part, name) for part in parts]))
        for name in NUMBERS
    }
    precisions = {part.dtype for part in parts}
    precision = precisions.pop() if len(precisions) == 1 else "float32"
    kind = {name: kind for kind, name in PRECISIONS.items()}[precision]
    for model in ("target", "draft"):
        name = f"{model}_logits"
        logits = [getattr(part, name) for part in parts]
        if isinstance(logits[0], TopRows):
            shape = rows, logits[0].k
            logprobs, rest = ([one.logprobs for one in logits], [one.rest for one in logits])
            columns |= {
                f"{model}_ids": NewTensor("I32", shape, _ids(logits)),
                f"{model}_logprobs": NewTensor("F32", shape, _pieces(logprobs)),
                f"{model}_rest": NewTensor("F32", shape[:1], _pieces(rest)),
            }
        else:
            columns[name] = NewTensor(kind, (rows, parts[0].vocab_size), _pieces(logits, name))
    return columns


def _check_layout(
    path: str, metadata: Mapping[str, str], tensors: Mapping[str, FileTensor]
) -> None:
    """Raise CaptureError unless tensors and labels are those of a capture."""
    layout = metadata.get("format")
    if layout not in (SIMPLE, FORMAT):
        raise CaptureError(
            f"{path}: format in the metadata of this safetensors file must be {FORMAT!r} or "
            f"{SIMPLE!r}, got {layout!r}; write it with captures.save"
        )
    top = layout == FORMAT and "target_ids" in tensors
    expected = (TOP if top else WHOLE) | (TEXTS if layout == FORMAT else {})
    labels = {*LABELS, "synthetic", *(["vocab_size"] if top else [])}
    if layout == SIMPLE:
        labels.add("contexts")
    absent = sorted((expected.keys() - tensors.keys()) | (labels - metadata.keys()))
    if absent or metadata["synthetic"] not in ("true", "false"):
        missing = ", ".join(absent) or "synthetic, as true or false"
        raise CaptureError(f"{path}: the file lacks {missing}; write it with captures.save")
    rows = next(iter(tensors["positions"].shape), 0)
    for name, tensor in tensors.items():
        if name not in expected or tensor.kind not in expected[name]:
            known = (f"{name} ({' or '.join(kinds)})" for name, kinds in expected.items())
            raise CaptureError(
                f"{path}: tensors must be {', '.join(known)}, got {name!r} of type "
                f"{tensor.kind}; write it with captures.save"
            )
        if name in TEXTS and len(tensor.shape) != 1:
            raise CaptureError(
                f"{path}: tensor {name!r} must have one axis, got shape {tensor.shape}; write it "
                "with captures.save"
            )
        if name not in TEXTS and tensor.shape != (rows, *tensor.shape[1:]):
            raise CaptureError(
                f"{path}: {name} must have shape {(rows, *tensor.shape[1:])}, one row for each of "
                f"its positions, got {tensor.shape}; write it again"
            )
    kinds = {tensors[name].kind for name in ("target_logits", "draft_logits") if name in tensors}
    if len(kinds) > 1:
        raise CaptureError(
            f"{path}: target_logits and draft_logits must be stored in one precision, got "
            f"{tensors['target_logits'].kind} and {tensors['draft_logits'].kind}"
        )


def _invalid_capture(path: str, error: Exception) -> CaptureError:
    return CaptureError(f"{path}: invalid values in the capture: {error}; capture the rows again")


def _parse_contexts(path: str, text: str) -> tuple[str, ...]:
    """Return the texts in a label of a simple layout."""
    try:
        contexts = json.loads(text)
        if not isinstance(contexts, list) or not all(isinstance(item, str) for item in contexts):
            raise ValueError("contexts must be a JSON list of strings")
    except (ValueError, RecursionError) as error:
        raise _invalid_capture(path, error) from error
    return tuple(contexts)


def _texts(parts: Sequence[Capture]) -> dict[str, NewTensor]:
    def encoded() -> Iterator[bytes]:
        return (text.encode("utf-8", "surrogatepass") for part in parts for text in part.contexts)

    ends = np.cumsum([len(text) for text in encoded()], dtype=np.int64)
    content = (np.frombuffer(text, np.uint8) for text in encoded())
    return {
        "context_ends": NewTensor("I64", ends.shape, [ends]),
        "contexts": NewTensor("U8", (int(ends[-1]) if ends.size else 0,), content),
    }


def _pieces(columns: Sequence[Any], name: str = "") -> Iterator[npt.NDArray[Any]]:
    """Yield pieces of columns; logits from a file, named `name`, are checked."""
    for column in columns:
        step = max(1, PIECE // (math.prod(column.shape[1:]) * column.dtype.itemsize))
        for start in range(0, column.shape[0], step):
            part = column[start : start + step]
            piece = np.asarray(part)
            if name and isinstance(part, StoredRows):
                check_logits(piece, name, part.where)
            yield piece


def _ids(columns: Sequence[TopRows]) -> Iterator[npt.NDArray[Any]]:
    """Yield pieces of ids; rows from a file are checked."""
    for rows in columns:
        start = 0
        for piece in _pieces([rows.ids]):
            part = rows[start : start + len(piece)]
            if isinstance(rows.ids, StoredRows):
                logprobs, rest = np.asarray(part.logprobs), np.asarray(part.rest)
                check_rows(piece, logprobs, rest, rows.vocab_size, part.where)
            yield piece
            start += len(piece)
