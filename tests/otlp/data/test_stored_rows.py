"""Captures that are not loaded into memory: all parts are equal, for any file size."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.capture_file import write
from otlp.data.captures import keep_top, load, save
from otlp.data.stored_rows import StoredRows
from otlp.errors import CaptureError
from tests.example_captures import DTYPES, LABELS, ROWS, V, check_same, example, in_file, opened


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_holds_the_capture(tmp_path: Path, dtype: str) -> None:
    capture = example(dtype=dtype)
    found = in_file(tmp_path, capture)
    assert isinstance(found.target_logits, StoredRows)
    check_same(found, capture)
    for row in range(ROWS):
        np.testing.assert_array_equal(found.distributions(row), capture.distributions(row))


@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("rows_each", [1, 3, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_captures_are_written_one_behind_the_other(
    tmp_path: Path, dtype: str, rows_each: int, kept: int
) -> None:
    whole = example(dtype=dtype)
    if kept:
        whole = keep_top(whole, kept)
    starts = range(0, ROWS, rows_each)
    for start in starts:
        save(whole[start : start + rows_each], tmp_path / f"{start}")
    parts = [opened(tmp_path / f"{start}") for start in starts]
    write(tmp_path / "joined", parts)
    save(whole, tmp_path / "whole")
    save(opened(tmp_path / "joined"), tmp_path / "again")
    for name in ("joined", "again"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole").read_bytes()


def test_every_slice_is_that_of_the_rows(tmp_path: Path) -> None:
    capture = example()
    found = in_file(tmp_path, capture)
    places = [None, *range(-ROWS - 1, ROWS + 2)]
    for start in places:
        for stop in places:
            for step in (None, 1, 2, -1, -3):
                cut = slice(start, stop, step)
                np.testing.assert_array_equal(
                    np.asarray(found.positions[cut]), capture.positions[cut]
                )
    for cut in (slice(2, 5), slice(None, None, -2), slice(6, 1, -1), slice(3, 3)):
        check_same(found[cut], capture[cut])
        check_same(found[1:][cut], capture[1:][cut])


@pytest.mark.parametrize("cut", [slice(None), slice(2, 5), slice(None, None, -2), slice(3, 3)])
@pytest.mark.parametrize("kept", [0, 3])
def test_a_copy_of_rows_in_a_file_can_be_written_into(
    tmp_path: Path, kept: int, cut: slice
) -> None:
    capture = keep_top(example(), kept) if kept else example()
    found = in_file(tmp_path, capture).target_logits[cut]
    copy = np.array(found)
    copy[...] = 1.0
    np.testing.assert_array_equal(np.asarray(found), np.asarray(capture.target_logits[cut]))


def test_a_pickle_holds_a_path_and_no_rows(tmp_path: Path) -> None:
    capture = example(rows=40, vocab_size=1000)
    found = in_file(tmp_path, capture)
    one = pickle.dumps(found[10:12])
    assert len(one) < 2000
    check_same(pickle.loads(one), capture[10:12])
    check_same(pickle.loads(pickle.dumps(found)), capture)


def test_no_rows_are_a_capture(tmp_path: Path) -> None:
    stored = in_file(tmp_path, example()[:0])
    for found in (stored, load(tmp_path / "mine.safetensors")):
        assert len(found) == 0 and list(found) == [] and found.vocab_size == V


def sparse(path: Path, rows: int, vocab_size: int, layout: str) -> None:
    """Create a sparse capture file of zeros."""
    metadata = {**LABELS, "synthetic": "true", "format": layout, "contexts": "[]"}
    sizes = {name: ("I64", [rows], 8 * rows) for name in ("positions", "next_tokens")}
    if layout == "otlp-capture-2":
        sizes |= {"context_ends": ("I64", [rows], 8 * rows), "contexts": ("U8", [0], 0)}
    for name in ("target_logits", "draft_logits"):
        sizes[name] = ("F16", [rows, vocab_size], 2 * rows * vocab_size)
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (kind, shape, size) in sizes.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_five_hundred_gigabytes_take_the_memory_of_a_row(tmp_path: Path) -> None:
    rows, vocab_size = 1_000_000, 128_256
    path = tmp_path / "large"
    try:
        sparse(path, rows, vocab_size, "otlp-capture-2")
    except OSError:
        pytest.skip("this file system has no files of 512 GB")
    tracemalloc.start()
    try:
        capture = opened(path)
        for row in (0, 499_999, 500_000, -1):
            p, _ = capture.distributions(row)
            assert p[0] == pytest.approx(1 / vocab_size)
        assert capture[700_000].context == ""
        assert tracemalloc.get_traced_memory()[1] < 10 * 8 * vocab_size
    finally:
        tracemalloc.stop()
    assert len(capture) == rows


def test_a_large_file_is_opened_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    sparse(path, 20_000, 4096, "otlp-capture-1")  # more than 256 MiB
    capture = load(path)
    assert isinstance(capture.target_logits, StoredRows)
    assert capture[19_999].target_logits.shape == (4096,)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(CaptureError, match="large: was changed"):
        capture.distributions(0)
    with pytest.raises(CaptureError, match="large: not a complete"):
        load(path)
