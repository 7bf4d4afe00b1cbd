"""Captured logits of a target and a draft model: real rows to solve, without running a model.

A capture is one safetensors file, which any tool that writes that format can make:

================== ======================= ==================================================
tensor             shape and type          meaning
================== ======================= ==================================================
``target_logits``  (rows, V), F16/BF16/F32 logits of the target at temperature 1
``draft_logits``   (rows, V), the same     logits of the draft for the same contexts
``positions``      (rows,), I64            tokens before the row in its passage; -1 if unknown
``next_tokens``    (rows,), I64            the token that the text goes on with; -1 if unknown
================== ======================= ==================================================

The file's metadata holds ``format`` (``otlp-capture-1``), ``target_model``, ``draft_model``,
``tokenizer``, ``source``, ``synthetic`` (``true`` or ``false``), ``note``, and ``contexts``, a
JSON list with the text before each row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from otlp.data.capture import Capture, CaptureRow, LogitArray
from otlp.data.whole_file import whole_file
from otlp.errors import CaptureError, InvalidInputError, OTLPError

__all__ = ["Capture", "CaptureRow", "LogitArray", "builtin", "load", "save"]

FORMAT = "otlp-capture-1"

_PRECISIONS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_NUMBERS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "I64": "<i8"}
_TENSORS = frozenset({"target_logits", "draft_logits", "positions", "next_tokens"})
_LABELS = ("target_model", "draft_model", "tokenizer", "source", "note")
_MOST_HEADER = 100_000_000
"""Bytes; the safetensors format allows no more."""


def load(path: str | os.PathLike[str]) -> Capture:
    """Read a capture.

    Parameters
    ----------
    path : path-like
        A file that `save` wrote, or that has the layout above.

    Returns
    -------
    Capture
        The capture, every value as it was stored.

    Raises
    ------
    CaptureError
        If the file is missing, unreadable, truncated, no safetensors file, no capture, or holds
        values that a `Capture` refuses. The message names the file, the trouble and the way out.

    Notes
    -----
    The file is opened once, so it is one file that is read, even if another takes its name
    meanwhile. The header is checked before any logits are read. O(file size) time and memory.
    """
    try:
        name = os.fspath(path)
    except TypeError:
        raise CaptureError(f"path is {path!r}: it must be the path of a file") from None
    try:
        with open(name, "rb") as file:
            start = _read_header(file)
            _check_layout(name, *_parse_header(start))
            content = start + file.read()
        tensors = dict(deserialize(content))  # type: ignore[no-untyped-call]
        metadata, stored = _parse_header(content)
    except FileNotFoundError:
        raise CaptureError(
            f"{name}: there is no such file; check the path, or write one with captures.save "
            "(captures.builtin needs no path)"
        ) from None
    except OSError as error:
        raise CaptureError(
            f"{name}: cannot be read ({error}); give the path of a readable file"
        ) from error
    except SafetensorError as error:
        raise CaptureError(
            f"{name}: not a complete safetensors file ({error}); it is truncated or something "
            "else: copy or write it again"
        ) from error
    try:
        arrays: dict[str, Any] = {key: _array(tensor) for key, tensor in tensors.items()}
        labels: dict[str, Any] = {label: metadata[label] for label in _LABELS}
        return Capture(
            **arrays,
            **labels,
            synthetic=metadata["synthetic"] == "true",
            contexts=_parse_contexts(metadata["contexts"]),
            dtype=_PRECISIONS[stored["target_logits"]],
        )
    except (OTLPError, ValueError, RecursionError) as error:
        raise CaptureError(
            f"{name}: holds values that are no capture: {error}; capture the rows again"
        ) from error


def save(capture: Capture, path: str | os.PathLike[str]) -> None:
    """Write a capture, all of it or nothing.

    Parameters
    ----------
    capture : Capture
        What to write; its logits are stored in the precision `capture.dtype`.
    path : path-like
        The file to write or replace; its folder must exist.

    Raises
    ------
    CaptureError
        If the file cannot be written. A file that was at `path` is then still there, unchanged.

    Notes
    -----
    See `otlp.data.whole_file`. O(file size) time and memory.
    """
    precision = {name: kind for kind, name in _PRECISIONS.items()}[capture.dtype]
    tensors = {
        "positions": ("I64", capture.positions),
        "next_tokens": ("I64", capture.next_tokens),
        "target_logits": (precision, capture.target_logits),
        "draft_logits": (precision, capture.draft_logits),
    }
    metadata = {
        "format": FORMAT,
        **{label: getattr(capture, label) for label in _LABELS},
        "synthetic": "true" if capture.synthetic else "false",
        "contexts": json.dumps(capture.contexts),
    }
    try:
        with whole_file(path) as temporary, open(temporary, "xb") as file:
            file.writelines(_safetensors(tensors, metadata))
    except OSError as error:
        raise CaptureError(
            f"{os.fspath(path)}: cannot be written ({error.strerror}); choose a folder that "
            "exists, is writable and has room"
        ) from error


def builtin() -> Capture:
    """Read the capture that comes with the library.

    Returns
    -------
    Capture
        Rows of a small real pair of language models (not synthetic) at consecutive positions of
        held-out passages; its `source` and `note` say which models and which text.

    Raises
    ------
    CaptureError
        If the installation lacks the file.
    """
    with resources.as_file(resources.files("otlp") / "data" / "capture.safetensors") as path:
        return load(path)


def _stored(numbers: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    if kind == "BF16":  # the upper half of a float32
        numbers = np.ascontiguousarray(numbers).view(np.uint32) >> np.uint32(16)
    return numbers.astype(_NUMBERS[kind])


def _safetensors(
    tensors: Mapping[str, tuple[str, npt.NDArray[Any]]], metadata: Mapping[str, str]
) -> list[bytes]:
    # The writer of the safetensors package for NumPy cannot express bfloat16.
    header: dict[str, Any] = {"__metadata__": metadata}
    chunks, end = [], 0
    for name, (dtype, array) in tensors.items():
        chunk = _stored(array, dtype).tobytes()
        start, end = end, end + len(chunk)
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [start, end]}
        chunks.append(chunk)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *chunks]


def _read_header(file: BinaryIO) -> bytes:
    """The first bytes of a safetensors file, to the end of the header; few, if it is none."""
    start = file.read(8)
    return start + file.read(min(int.from_bytes(start, "little"), _MOST_HEADER))


def _parse_header(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Metadata, and the type of each tensor.

    Raises
    ------
    SafetensorError
        If there is no such header; what else it says is for `deserialize` to judge.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8:end])
        metadata = dict(header.pop("__metadata__", {}))
        return metadata, {key: entry["dtype"] for key, entry in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SafetensorError(f"its header cannot be read: {error}") from None


def _array(tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
    flat = np.frombuffer(tensor["data"], _NUMBERS[tensor["dtype"]])
    array = flat.reshape(tensor["shape"])
    if tensor["dtype"] == "BF16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array


def _check_layout(name: str, metadata: Mapping[str, str], stored: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise CaptureError(
            f"{name}: a safetensors file, but its metadata has format "
            f"{metadata.get('format')!r} instead of {FORMAT!r}; write it with captures.save"
        )
    absent = sorted((_TENSORS - stored.keys()) | ({*_LABELS, "contexts"} - metadata.keys()))
    if absent or metadata.get("synthetic") not in ("true", "false"):
        missing = ", ".join(absent) or "synthetic, as true or false"
        raise CaptureError(f"{name}: lacks {missing}; write it with captures.save")
    for key, dtype in stored.items():
        allowed = ("I64",) if key in ("positions", "next_tokens") else tuple(_PRECISIONS)
        if key not in _TENSORS or dtype not in allowed:
            raise CaptureError(
                f"{name}: its tensor {key!r} of type {dtype} is no part of a capture, which has "
                "target_logits and draft_logits (F16, BF16 or F32), positions and next_tokens "
                "(I64); write it with captures.save"
            )
    if stored["target_logits"] != stored["draft_logits"]:
        raise CaptureError(
            f"{name}: target_logits is {stored['target_logits']} and draft_logits "
            f"{stored['draft_logits']}; store both in one precision"
        )


def _parse_contexts(text: str) -> tuple[str, ...]:
    contexts = json.loads(text)
    if not isinstance(contexts, list) or not all(isinstance(item, str) for item in contexts):
        raise InvalidInputError("contexts must be a JSON list of strings")
    return tuple(contexts)
