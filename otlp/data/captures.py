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
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from otlp.distribution import FloatArray, IntArray, as_array, precision, softmax
from otlp.distribution import top_k as keep_top_k
from otlp.distribution import top_p as keep_top_p
from otlp.errors import (
    CaptureError,
    InvalidInputError,
    OTLPError,
    RowOutOfRangeError,
    TokenOutOfRangeError,
)

__all__ = ["Capture", "CaptureRow", "LogitArray", "builtin", "load", "save"]

LogitArray = npt.NDArray[np.float16] | npt.NDArray[np.float32]

FORMAT = "otlp-capture-1"
UNKNOWN = -1

_STORED_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_MEMORY_TYPES: dict[str, type[np.float16] | type[np.float32]] = {
    "float16": np.float16,
    "bfloat16": np.float32,
    "float32": np.float32,
}
_TENSORS = frozenset({"target_logits", "draft_logits", "positions", "next_tokens"})
_LABELS = ("target_model", "draft_model", "tokenizer", "source", "note")


def _unknown() -> IntArray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CaptureRow:
    """One decoding step of a capture.

    Attributes
    ----------
    target_logits, draft_logits : ndarray, shape (V,)
        Logits at temperature 1.
    context : str
        The text before this step; empty if unknown.
    position : int
        How many tokens of the passage come before this step; -1 if unknown.
    next_token : int
        The token that the text goes on with; -1 if unknown.
    """

    target_logits: LogitArray
    draft_logits: LogitArray
    context: str
    position: int
    next_token: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Capture:
    """Pairs of target and draft logits over one vocabulary, and where they come from.

    ``len(capture)`` is the number of rows, ``capture[3]`` is a `CaptureRow`, ``capture[10:20]``
    is a `Capture` of those rows, and iteration goes over the rows.

    Parameters
    ----------
    target_logits, draft_logits : ndarray, shape (rows, V)
        Logits at temperature 1, in natural units (nats), float16, bfloat16 or float32, both
        alike. Minus infinity masks a token.
    target_model, draft_model : str
        The names of the models.
    tokenizer : str
        The name of the tokenizer, which gives the V token ids their meaning.
    source : str
        What text the rows come from.
    synthetic : bool
        True if the logits were made up rather than computed by language models.
    note : str, optional
        Anything else that a reader should know.
    contexts : tuple of str, length rows, optional
        The text before each row; left out, unknown.
    positions : ndarray of int64, shape (rows,), optional
        How many tokens of its passage come before each row; -1, or left out, if unknown.
    next_tokens : ndarray of int64, shape (rows,), optional
        The token that the text goes on with; -1, or left out, if unknown.
    dtype : str, optional
        The precision that the logits have and are saved in: ``"float16"``, ``"bfloat16"`` or
        ``"float32"``; left out, that of the arrays. NumPy has no bfloat16, so bfloat16 logits are
        float32 arrays here whose values bfloat16 can hold.

    Raises
    ------
    InvalidInputError
        If shapes or precisions do not fit together, if a row has a NaN, plus infinity, or
        nothing but minus infinity (the message names the row), or if `dtype` does not fit them.
    TokenOutOfRangeError
        If a next token is not in [-1, V).

    Notes
    -----
    The arrays are not copied where the type allows, and are read-only. Validation is one pass
    over the logits, O(rows V).
    """

    target_logits: LogitArray
    draft_logits: LogitArray
    target_model: str
    draft_model: str
    tokenizer: str
    source: str
    synthetic: bool
    note: str = ""
    contexts: tuple[str, ...] = ()
    positions: IntArray = field(default_factory=_unknown)
    next_tokens: IntArray = field(default_factory=_unknown)
    dtype: str = ""

    def __post_init__(self) -> None:
        target = as_array(self.target_logits, "target_logits")
        draft = as_array(self.draft_logits, "draft_logits")
        if target.ndim != 2 or target.shape != draft.shape or target.shape[1] == 0:
            raise InvalidInputError(
                f"target_logits has shape {target.shape} and draft_logits {draft.shape}: "
                "both must be (rows, V) with the same rows and the same V of at least 1"
            )
        rows, vocab_size = target.shape
        given = precision(self.target_logits) or target.dtype.name
        other = precision(self.draft_logits) or draft.dtype.name
        if given != other:
            raise InvalidInputError(
                f"target_logits is {given} and draft_logits {other}: "
                "convert one, so that both have one precision"
            )
        dtype = self.dtype or given
        contexts = tuple(self.contexts) or ("",) * rows
        if len(contexts) != rows:
            raise InvalidInputError(
                f"contexts has {len(contexts)} entries for {rows} rows: give one for each row, "
                "or none at all"
            )
        next_tokens = _row_numbers(self.next_tokens, rows, "next_tokens")
        for row in np.flatnonzero((next_tokens < UNKNOWN) | (next_tokens >= vocab_size))[:1]:
            raise TokenOutOfRangeError(
                f"next_tokens[{row}] is {next_tokens[row]}: a token id is in [0, {vocab_size}), "
                "or -1 if the next token is unknown"
            )
        values = {
            "target_logits": _logits(target, dtype, "target_logits"),
            "draft_logits": _logits(draft, dtype, "draft_logits"),
            "contexts": contexts,
            "positions": _row_numbers(self.positions, rows, "positions"),
            "next_tokens": next_tokens,
            "dtype": dtype,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def vocab_size(self) -> int:
        """The vocabulary size V."""
        return int(self.target_logits.shape[1])

    def __repr__(self) -> str:
        """Say what the capture is, without its numbers."""
        kind = "synthetic" if self.synthetic else "real"
        return (
            f"Capture({len(self)} {kind} rows, V = {self.vocab_size}, {self.dtype}, "
            f"target {self.target_model!r}, draft {self.draft_model!r})"
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.target_logits.shape[0])

    def __iter__(self) -> Iterator[CaptureRow]:
        """Iterate over the rows."""
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, rows: int) -> CaptureRow: ...
    @overload
    def __getitem__(self, rows: slice) -> Capture: ...
    def __getitem__(self, rows: int | slice) -> CaptureRow | Capture:
        """Return one row for a number, or a capture of some rows for a slice."""
        if isinstance(rows, slice):
            return replace(
                self,
                target_logits=self.target_logits[rows],
                draft_logits=self.draft_logits[rows],
                contexts=self.contexts[rows],
                positions=self.positions[rows],
                next_tokens=self.next_tokens[rows],
            )
        self._check_row(rows)
        return CaptureRow(
            self.target_logits[rows],
            self.draft_logits[rows],
            self.contexts[rows],
            int(self.positions[rows]),
            int(self.next_tokens[rows]),
        )

    def distributions(
        self,
        row: int,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Turn one row into the target and the draft distribution.

        Parameters
        ----------
        row : int
            The row; negative numbers count from the end.
        temperature : float
            Divides the target's logits, and the draft's too unless `draft_temperature` is given,
            as in a sampler with one temperature for both models; greater than 0.
        draft_temperature : float, optional
            Divides the draft's logits instead of `temperature`.
        top_k : int, optional
            Keep the k likeliest tokens of the draft: exactly k of them, ties going to the lowest
            token id. Never touches the target, so that the target's law stays what it was.
        top_p : float, optional
            Keep the smallest set of likeliest tokens of the draft whose mass reaches `top_p`,
            ties likewise. With `top_k` too, the mass is that after the top-k cut.

        Returns
        -------
        p, q : ndarray, shape (V,), float64
            The target's and the draft's probabilities, each summing to one.

        Raises
        ------
        RowOutOfRangeError
            If there is no such row.
        InvalidInputError
            If a temperature is not positive and finite, k is below 1, or `top_p` not in (0, 1].

        Notes
        -----
        The softmax is taken in float64 whatever the logits' precision. O(V), and O(V log V) with
        `top_k` or `top_p`.
        """
        self._check_row(row)
        p = softmax(self.target_logits[row], temperature)
        q = softmax(
            self.draft_logits[row],
            temperature if draft_temperature is None else draft_temperature,
        )
        if top_k is not None:
            q = keep_top_k(q, top_k)
        if top_p is not None:
            q = keep_top_p(q, top_p)
        return p, q

    def _check_row(self, row: int) -> None:
        if not -len(self) <= row < len(self):
            raise RowOutOfRangeError(
                f"row {row} is out of range: this capture has {len(self)} rows, counted from 0"
            )


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
    Header and size are checked before any logits are read. O(file size) time and memory.
    """
    name = os.fspath(path)
    try:
        with safe_open(name, framework="numpy") as file:
            metadata = file.metadata() or {}
            stored = {key: file.get_slice(key).get_dtype() for key in file.keys()}
        _check_layout(name, metadata, stored)
        content = Path(name).read_bytes()
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
        return Capture(
            **_arrays(content),
            **{label: metadata[label] for label in _LABELS},
            synthetic=metadata["synthetic"] == "true",
            contexts=_parse_contexts(metadata["contexts"]),
            dtype=_STORED_NAMES[stored["target_logits"]],
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
    The bytes go to a temporary file in the same folder, which then takes the name in one step, so
    no reader ever sees half a file. O(file size) time and memory.
    """
    tensors = {
        "positions": ("I64", capture.positions.astype("<i8")),
        "next_tokens": ("I64", capture.next_tokens.astype("<i8")),
        "target_logits": _stored(capture.target_logits, capture.dtype),
        "draft_logits": _stored(capture.draft_logits, capture.dtype),
    }
    metadata = {
        "format": FORMAT,
        **{label: getattr(capture, label) for label in _LABELS},
        "synthetic": "true" if capture.synthetic else "false",
        "contexts": json.dumps(capture.contexts),
    }
    _write(Path(path), _safetensors(tensors, metadata))


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


def _row_numbers(values: npt.ArrayLike, rows: int, name: str) -> IntArray:
    numbers = as_array(values, name)
    if numbers.size == 0:
        numbers = np.full(rows, UNKNOWN, dtype=np.int64)
    if numbers.shape != (rows,) or numbers.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} has shape {numbers.shape} and type {numbers.dtype}: it must hold one integer "
            f"for each of {rows} rows, or nothing at all"
        )
    return _read_only(numbers.astype(np.int64, copy=False))


def _logits(given: npt.NDArray[Any], dtype: str, name: str) -> LogitArray:
    # A bfloat16 is the upper half of a float32, so nothing is lost. NumPy itself has no such type:
    # the arrays come from other libraries that add it.
    logits = given.astype(np.float32) if given.dtype.name == "bfloat16" else given
    if dtype not in _MEMORY_TYPES or logits.dtype != _MEMORY_TYPES[dtype]:
        raise InvalidInputError(
            f"{name} holds {given.dtype} and dtype is {dtype!r}: a capture is float16, bfloat16 "
            "or float32 (bfloat16 in float32 arrays); convert the logits, for example by "
            "logits.astype(numpy.float32)"
        )
    peaks = logits.max(axis=1)
    for row in np.flatnonzero(~np.isfinite(peaks))[:1]:
        found = "nothing but -inf" if peaks[row] == -np.inf else str(peaks[row])
        raise InvalidInputError(
            f"{name} row {row} holds {found}: a row needs a finite logit and may hold -inf, but "
            "no NaN or +inf; drop the row or mask the token with -inf"
        )
    if dtype == "bfloat16" and np.any(logits.view(np.uint32) & np.uint32(0xFFFF)):
        raise InvalidInputError(
            f"{name} holds values that bfloat16 would round: leave dtype out to keep them in "
            "float32, or round them first"
        )
    return _read_only(logits)


def _bfloat16_bits(logits: LogitArray) -> npt.NDArray[np.uint16]:
    bits = np.ascontiguousarray(logits, dtype=np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype("<u2")


def _widen(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # A view, so that the caller's own array stays writable.
    view = array.view()
    view.flags.writeable = False
    return view


def _stored(logits: LogitArray, dtype: str) -> tuple[str, npt.NDArray[Any]]:
    if dtype == "bfloat16":
        return "BF16", _bfloat16_bits(logits)
    return ("F16", logits.astype("<f2")) if dtype == "float16" else ("F32", logits.astype("<f4"))


def _safetensors(
    tensors: Mapping[str, tuple[str, npt.NDArray[Any]]], metadata: Mapping[str, str]
) -> list[bytes]:
    # The writer of the safetensors package for NumPy cannot express bfloat16.
    header: dict[str, Any] = {"__metadata__": metadata}
    chunks, end = [], 0
    for name, (dtype, array) in tensors.items():
        chunk = array.tobytes()
        start, end = end, end + len(chunk)
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [start, end]}
        chunks.append(chunk)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *chunks]


def _arrays(content: bytes) -> dict[str, Any]:
    # Nor can its reader; it has checked the header and the offsets by now.
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    types = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "I64": "<i8"}
    arrays = {}
    for name in _TENSORS:
        entry = header[name]
        begin, end = entry["data_offsets"]
        count = (end - begin) // np.dtype(types[entry["dtype"]]).itemsize
        flat = np.frombuffer(content, types[entry["dtype"]], count, start + begin)
        array = flat.reshape(entry["shape"])
        arrays[name] = _widen(array) if entry["dtype"] == "BF16" else array
    return arrays


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
        allowed = ("I64",) if key in ("positions", "next_tokens") else tuple(_STORED_NAMES)
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


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CaptureError(
            f"{path}: cannot be written ({error.strerror}); choose a folder that exists, is "
            "writable and has room"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
