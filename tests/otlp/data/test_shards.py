"""Captures in shards: rows stay in their files, and what is wrong with a shard is named."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.captures import load, save
from otlp.data.stored_rows import StoredRows
from otlp.errors import CaptureError
from tests.example_captures import (
    DTYPES,
    LABELS,
    ROWS,
    V,
    check_same,
    example,
    in_shards,
    shard,
)

# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows_each", [1, 3, 7])
def test_shards_hold_the_capture(tmp_path: Path, dtype: str, rows_each: int) -> None:
    capture = example(dtype=dtype)
    found = load(in_shards(tmp_path, capture, rows_each))
    assert len(list(tmp_path.iterdir())) == 1 + -(-ROWS // rows_each)
    assert isinstance(found.target_logits, StoredRows)
    check_same(found, capture)
    for row in range(ROWS):
        np.testing.assert_array_equal(found.distributions(row), capture.distributions(row))


def test_every_slice_is_that_of_the_rows(tmp_path: Path) -> None:
    capture = example()
    found = load(in_shards(tmp_path, capture))
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


def test_a_pickle_holds_paths_and_only_those_it_needs(tmp_path: Path) -> None:
    capture = example(rows=40, vocab_size=1000)
    found = load(in_shards(tmp_path, capture, rows_each=2))
    one = pickle.dumps(found[10:12])
    assert len(one) < 2000
    assert b"00006-of" in one and b"00005-of" not in one
    check_same(pickle.loads(one), capture[10:12])
    check_same(pickle.loads(pickle.dumps(found)), capture)


@pytest.mark.parametrize(
    "name",
    ["mine.safetensors", "mine.safetensors.index.json", ".", "mine-00002-of-00003.safetensors"],
)
def test_a_name_an_index_a_folder_or_a_shard_is_a_capture(tmp_path: Path, name: str) -> None:
    in_shards(tmp_path)
    wanted = example()[3:6] if "00002" in name else example()
    check_same(load(tmp_path / name), wanted)


def test_the_index_is_that_of_the_convention(tmp_path: Path) -> None:
    """Each tensor is in the file that the map says, as the safetensors package reads it."""
    safetensors = pytest.importorskip("safetensors")
    index = json.loads(in_shards(tmp_path).read_text())
    read, size = {}, 0
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(tmp_path / file, "np") as opened:
            read[name] = opened.get_tensor(name)
            size += read[name].nbytes
    assert index["metadata"]["total_size"] == size
    rows = [read[f"target_logits.0000{number}"] for number in (1, 2, 3)]
    np.testing.assert_array_equal(np.concatenate(rows), example().target_logits)
    assert index["metadata"]["rows"] == [3, 3, 1]


def test_a_capture_of_no_rows_has_one_shard(tmp_path: Path) -> None:
    found = load(in_shards(tmp_path, example()[:0]))
    assert len(found) == 0 and list(found) == [] and found.vocab_size == V


def test_what_was_in_shards_makes_the_same_file(tmp_path: Path) -> None:
    capture = example(dtype="bfloat16")
    save(capture, tmp_path / "one")
    save(load(in_shards(tmp_path, capture, 2)), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "one").read_bytes()


def sparse(path: Path, rows: int, vocab_size: int, suffix: str = "") -> None:
    """A capture file of zeros that takes no room on the disk."""
    metadata = {**LABELS, "synthetic": "true", "format": "otlp-capture-1", "contexts": "[]"}
    sizes = {name: ("I64", [rows], 8 * rows) for name in ("positions", "next_tokens")}
    if suffix:
        metadata["format"] = "otlp-capture-2"
        sizes |= {"context_ends": ("I64", [rows], 8 * rows), "contexts": ("U8", [0], 0)}
    for name in ("target_logits", "draft_logits"):
        sizes[name] = ("F16", [rows, vocab_size], 2 * rows * vocab_size)
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (kind, shape, size) in sizes.items():
        header[name + suffix] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_five_hundred_gigabytes_take_the_memory_of_a_row(tmp_path: Path) -> None:
    rows, vocab_size = 500_000, 128_256
    for number in (1, 2):
        try:
            sparse(shard(tmp_path, number, 2), rows, vocab_size, f".{number:05d}")
        except OSError:
            pytest.skip("this file system has no files of 256 GB")
    names = (
        "positions",
        "next_tokens",
        "context_ends",
        "contexts",
        "target_logits",
        "draft_logits",
    )
    index = {
        "metadata": {
            **{**LABELS, "synthetic": "true", "format": "otlp-capture-index-1"},
            **{"rows": [rows, rows], "dtype": "float16", "vocab_size": vocab_size},
        },
        "weight_map": {
            f"{name}.{i:05d}": shard(tmp_path, i, 2).name for i in (1, 2) for name in names
        },
    }
    (tmp_path / "mine.safetensors.index.json").write_text(json.dumps(index))
    tracemalloc.start()
    try:
        capture = load(tmp_path)
        for row in (0, 499_999, 500_000, -1):
            p, _ = capture.distributions(row)
            assert p[0] == pytest.approx(1 / vocab_size)
        assert capture[700_000].context == ""
        assert tracemalloc.get_traced_memory()[1] < 10 * 8 * vocab_size
    finally:
        tracemalloc.stop()
    assert len(capture) == 1_000_000


def test_a_large_file_is_opened_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    sparse(path, 20_000, 4096)  # more than 256 MiB
    capture = load(path)
    assert isinstance(capture.target_logits, StoredRows)
    assert capture[19_999].target_logits.shape == (4096,)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(CaptureError, match="large: was changed"):
        capture.distributions(0)
    with pytest.raises(CaptureError, match="large: not a complete"):
        load(path)
