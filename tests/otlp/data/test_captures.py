"""Captures: files round-trip, damaged files are detected, rows become distributions."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from otlp.data import capture_file
from otlp.data.captures import load, save
from otlp.errors import CaptureError, InvalidInputError, OTLPError, TokenOutOfRangeError
from tests.damaged_files import change_header, files_of_at_most
from tests.example_captures import (
    DTYPES,
    MEMORY,
    bfloat16_values,
    check_same,
    example,
    make,
    save_simply,
)


@st.composite
def captures(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.tuples(st.integers(0, 6), st.integers(1, 6)))
    width = 16 if dtype == "float16" else 32
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False)
    numbers |= st.just(-math.inf)
    pair = []
    for _ in range(2):
        logits = draw(hnp.arrays(MEMORY[dtype], shape, elements=numbers))
        # One finite logit per row, at any position.
        logits[:, draw(st.integers(0, shape[1] - 1))] = 1.5
        pair.append(bfloat16_values(logits) if dtype == "bfloat16" else logits)
    rows, vocab_size = shape
    return make(
        *pair,
        dtype=dtype,
        synthetic=draw(st.booleans()),
        note=draw(st.text(st.characters(exclude_categories=["Cs"]))),
        contexts=tuple(draw(st.lists(st.text(), min_size=rows, max_size=rows))),
        positions=draw(hnp.arrays(np.int64, rows, elements=st.integers(-1, 10**9))),
        next_tokens=draw(hnp.arrays(np.int64, rows, elements=st.integers(-1, vocab_size - 1))),
    )


# --- files ---------------------------------------------------------------------------------------


@given(capture=captures())
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, capture):
    path = tmp_path_factory.mktemp("captures") / "capture.safetensors"
    save(capture, path)
    check_same(load(path), capture)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_are_stored_in_their_precision(tmp_path, dtype):
    capture = example(rows=50, vocab_size=400, dtype=dtype)
    save(capture, tmp_path / "capture")
    bytes_each = 4 if dtype == "float32" else 2
    logits = 2 * 50 * 400 * bytes_each
    assert logits < (tmp_path / "capture").stat().st_size < logits + 10_000


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda header: header["__metadata__"].update(format="other"),
            "format in the metadata .*, got 'other'",
        ),
        (lambda header: header.pop("__metadata__"), "format in the metadata .*, got None"),
        (lambda header: header["__metadata__"].pop("tokenizer"), "lacks tokenizer"),
        (lambda header: header["__metadata__"].update(synthetic="perhaps"), "synthetic"),
        (lambda header: header["target_logits"].update(dtype="I32"), "type I32"),
        (lambda header: header["target_logits"].update(shape=[5, 3]), "must have"),
        (lambda header: header.update(logits=header.pop("draft_logits")), "lacks draft_logits"),
        (lambda header: header.update(other=header.pop("positions")), "lacks positions"),
    ],
)
@pytest.mark.parametrize("write", [save, save_simply])
def test_a_wrong_layout_is_named(tmp_path, write, edit, message):
    path = tmp_path / "edited"
    write(example(rows=3), path)
    change_header(path, edit)
    with pytest.raises(CaptureError, match=message) as caught:
        load(path)
    assert "edited" in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("3", "JSON list of strings"),
        ("[", "invalid values in the capture"),
        ("[" * 99999, "invalid values in the capture"),
        ('["a"]', "one entry for each of 3 rows .*, got 1 entries"),
    ],
)
def test_texts_of_the_simple_layout_are_a_list(tmp_path, texts, message):
    path = tmp_path / "edited"
    save_simply(example(rows=3), path)
    check_same(load(path), example(rows=3))
    change_header(path, lambda header: header["__metadata__"].update(contexts=texts))
    with pytest.raises(CaptureError, match=rf"edited.*{message}"):
        load(path)


def test_a_missing_file_and_a_folder_are_capture_errors(tmp_path):
    with pytest.raises(CaptureError, match="no such file") as caught:
        load(tmp_path / "nowhere")
    assert isinstance(caught.value, OTLPError) and isinstance(caught.value, ValueError)
    with pytest.raises(CaptureError, match="not a regular file"):
        load(tmp_path)


@pytest.mark.parametrize("folder", ["absent", "file"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, folder):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CaptureError, match="cannot be written"):
        save(example(), tmp_path / folder / "capture")


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "capture"
    old, new = example(seed=1), example(rows=200, vocab_size=100, seed=2)
    save(old, path)
    with files_of_at_most(20_000), pytest.raises(CaptureError, match="cannot be written"):
        save(new, path)
    check_same(load(path), old)
    assert [entry.name for entry in tmp_path.iterdir()] == ["capture"]


# --- refused input -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["target_logits", "draft_logits"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@given(row=st.integers(0, 5), token=st.integers(0, 3))
def test_bad_logits_are_refused_by_row(name, bad, row, token):
    logits = np.zeros((6, 4), dtype=np.float32)
    wrong = logits.copy()
    wrong[row, slice(None) if bad == -math.inf else token] = bad
    arrays = {"target_logits": logits, "draft_logits": logits, name: wrong}
    with pytest.raises(InvalidInputError, match=f"{name} row {row} "):
        make(arrays["target_logits"], arrays["draft_logits"])


@pytest.mark.parametrize(
    "changes",
    [
        {"contexts": ("only one",)},
        {"positions": np.arange(3)},
        {"positions": np.array([0.5, 1.5])},
        {"next_tokens": np.zeros((2, 1), dtype=np.int64)},
        {"dtype": "float16"},
        {"dtype": "float64"},
        {"dtype": "bfloat16"},
    ],
)
def test_what_does_not_fit_the_rows_is_refused(changes):
    with pytest.raises(InvalidInputError):
        make(np.full((2, 4), 0.1, dtype=np.float32), **changes)


def test_shapes_and_precisions_must_agree():
    with pytest.raises(InvalidInputError, match=r"\(2, 4\).*\(2, 5\)"):
        make(np.zeros((2, 4), dtype=np.float32), np.zeros((2, 5), dtype=np.float32))
    with pytest.raises(InvalidInputError, match=r"float32.*float16"):
        make(np.zeros((2, 4), dtype=np.float32), np.zeros((2, 4), dtype=np.float16))
    with pytest.raises(InvalidInputError, match="int64"):
        make(np.zeros((2, 4), dtype=np.int64))
    with pytest.raises(InvalidInputError, match="rows, V"):
        make(np.zeros(4, dtype=np.float32))


@pytest.mark.parametrize("token", [-2, 4, 10**12])
def test_a_next_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(TokenOutOfRangeError, match=rf"next_tokens\[1\] must be .*, got {token}"):
        make(np.zeros((2, 4), dtype=np.float32), next_tokens=np.array([3, token]))


def test_arrays_of_the_bfloat16_type_of_other_libraries_are_taken():
    extension = pytest.importorskip("ml_dtypes")
    logits = np.array([[0.1, -3.0]], dtype=extension.bfloat16)
    capture = make(logits)
    assert capture.dtype == "bfloat16"
    assert np.array_equal(capture.target_logits, logits.astype(np.float32))


def test_a_capture_cannot_be_changed():
    logits = np.zeros((2, 4), dtype=np.float32)
    capture = make(logits)
    with pytest.raises(ValueError, match="read-only"):
        capture.target_logits[0, 0] = 1.0
    with pytest.raises(AttributeError):
        capture.note = "other"  # type: ignore[misc]
    logits[0, 0] = 1.0


# --- rows ----------------------------------------------------------------------------------------


@given(capture=captures(), cut=st.slices(6))
def test_a_slice_is_the_capture_of_those_rows(capture, cut):
    rows = list(range(len(capture))[cut])
    columns = ("target_logits", "draft_logits", "positions", "next_tokens")
    chosen = {name: getattr(capture, name)[rows] for name in columns}
    contexts = tuple(capture.contexts[row] for row in rows)
    check_same(capture[cut], replace(capture, contexts=contexts, **chosen))


def test_a_row_has_what_belongs_to_it():
    capture = example(rows=3)
    row = capture[-1]
    assert np.array_equal(row.target_logits, capture.target_logits[2])
    assert np.array_equal(row.draft_logits, capture.draft_logits[2])
    assert (row.context, row.position, row.next_token) == (capture.contexts[2], 9, 2)
    assert [row.position for row in capture] == [7, 8, 9]


def test_metadata_left_out_is_unknown():
    row = make(np.zeros((2, 4), dtype=np.float32))[1]
    assert (row.context, row.position, row.next_token) == ("", -1, -1)


@pytest.mark.parametrize("row", [3, -4, 10**9])
def test_a_row_that_is_not_there_is_an_index_error(row):
    with pytest.raises(IndexError, match=f"row {row} .*3 rows"):
        example(rows=3)[row]
    with pytest.raises(IndexError, match=f"row {row} .*3 rows"):
        example(rows=3).distributions(row)


# --- unusual use ---------------------------------------------------------------------------------


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    path, other = tmp_path / "capture", tmp_path / "other"
    first = example(seed=1)
    save(first, path)
    save(replace(example(seed=2), target_model="another"), other)
    read = capture_file.read_header  # type: ignore[attr-defined]

    def replaced_meanwhile(path, file):
        header = read(path, file)
        os.replace(other, path)
        return header

    monkeypatch.setattr(capture_file, "read_header", replaced_meanwhile)
    check_same(load(path), first)


def test_readers_beside_a_writer_get_one_file_or_the_other(tmp_path):
    path = tmp_path / "capture"
    pair = [replace(example(seed=seed), target_model=str(seed)) for seed in (0, 1)]
    save(pair[0], path)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for capture in pair:
                save(capture, path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            found = load(path)
            check_same(found, pair[int(found.target_model)])
    finally:
        stop.set()
        writer.join()


def test_a_header_that_claims_too_much_is_refused(tmp_path):
    path = tmp_path / "claims"
    save(example(), path)
    content = path.read_bytes()
    for length in (2**63, 2**40, len(content), 0, 2):
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(CaptureError, match="claims"):
            load(path)
