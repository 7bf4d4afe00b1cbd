"""Small captures, and a check that two captures are equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from otlp.data.capture_file import read_capture_file
from otlp.data.captures import Capture, save
from otlp.data.tensor_file import NewTensor, write_tensors

LABELS = {
    "target_model": "large",
    "draft_model": "small",
    "tokenizer": "letters",
    "source": "a test",
    "note": "line one\nline two",
}
DTYPES = ("float16", "bfloat16", "float32")
MEMORY = {"float16": np.float16, "bfloat16": np.float32, "float32": np.float32}


def bfloat16_values(logits: Any) -> Any:
    bits = np.asarray(logits, dtype=np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def make(target: Any, draft: Any = None, **changes: Any) -> Capture:
    """Return a capture with labels; `draft` defaults to the target."""
    draft = target if draft is None else draft
    labels = {**LABELS, "synthetic": False, **changes}
    return Capture(target_logits=target, draft_logits=draft, **labels)


def example(
    rows: int = 7, vocab_size: int = 5, dtype: str = "float32", seed: int = 0, **changes: Any
) -> Capture:
    """Return a capture with random logits and a context of different length for each row."""
    logits = np.random.default_rng(seed).normal(size=(2, rows, vocab_size)).astype(MEMORY[dtype])
    if dtype == "bfloat16":
        logits = bfloat16_values(logits)
    given = {
        "dtype": dtype,
        "contexts": tuple(f"before row {row} \u2192 \U0001f600"[: 5 * row] for row in range(rows)),
        "positions": np.arange(rows) + 7,
        "next_tokens": np.arange(rows) % vocab_size,
    }
    return make(*logits, **{**given, **changes})


def check_same(found: Capture, wanted: Capture) -> None:
    assert len(found) == len(wanted)
    assert (found.dtype, found.synthetic) == (wanted.dtype, wanted.synthetic)
    assert tuple(found.contexts) == tuple(wanted.contexts)
    assert [getattr(found, name) for name in LABELS] == [getattr(wanted, name) for name in LABELS]
    for name in ("target_logits", "draft_logits", "positions", "next_tokens"):
        np.testing.assert_array_equal(
            np.asarray(getattr(found, name)), np.asarray(getattr(wanted, name)), strict=True
        )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.draft_logits, other.draft_logits, strict=True)
        assert one.context == other.context
        assert (one.position, one.next_token) == (other.position, other.next_token)


def save_simply(capture: Capture, path: Path) -> None:
    """Save in the simple layout, in which the contexts are a label."""
    kinds = {
        "target_logits": "F32",
        "draft_logits": "F32",
        "positions": "I64",
        "next_tokens": "I64",
    }
    columns = {
        name: NewTensor(kind, getattr(capture, name).shape, [getattr(capture, name)])
        for name, kind in kinds.items()
    }
    texts = json.dumps(capture.contexts)
    more = {"format": "otlp-capture-1", "synthetic": "false", "contexts": texts}
    write_tensors(path, columns, LABELS | more)


ROWS, V = 7, 5
"""Numbers of rows and tokens of `example`."""


def in_file(folder: Path, capture: Capture | None = None) -> Capture:
    """Save a capture as ``mine.safetensors`` and open it without loading its rows."""
    save(example() if capture is None else capture, folder / "mine.safetensors")
    return opened(folder / "mine.safetensors")


def opened(path: Path) -> Capture:
    """Open a capture without loading its rows into memory."""
    return read_capture_file(str(path), most=0)
