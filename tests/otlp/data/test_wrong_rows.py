"""Errors name the damaged row or text of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from otlp.data.captures import Capture, load, save
from otlp.errors import CaptureError, InvalidInputError, TokenOutOfRangeError
from tests.damaged_files import change_header, without_checks
from tests.example_captures import ROWS, V, example, in_file, opened


def poke(path: Path, tensor: str, at: int, content: bytes) -> None:
    """Overwrite bytes of a tensor."""
    whole = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(whole[:8], "little")
    start = end + json.loads(whole[8:end])[tensor]["data_offsets"][0] + at
    whole[start : start + len(content)] = content
    path.write_bytes(whole)


NAME = "mine.safetensors"


def sound(capture: Capture, row: int) -> bool:
    try:
        return bool(np.isfinite(capture.distributions(row)).all())
    except InvalidInputError:
        return False


def test_a_row_that_is_none_is_named_when_it_is_met(tmp_path: Path) -> None:
    in_file(tmp_path)
    without_checks(tmp_path / NAME)
    nan = np.array(np.nan, dtype="<f4").tobytes()
    poke(tmp_path / NAME, "draft_logits", (4 * V + 2) * 4, nan)
    with pytest.raises(CaptureError, match=r"mine.*draft_logits row 4 must have .*, got nan"):
        load(tmp_path / NAME)
    poke(tmp_path / NAME, "next_tokens", 5 * 8, np.int64(V).tobytes())
    capture = opened(tmp_path / NAME)
    where = r"draft_logits row {} \(row 4 of .*mine.safetensors\) must have .*, got nan"
    for use in (lambda c, row: c[row], lambda c, row: c.distributions(row)):
        with pytest.raises(InvalidInputError, match=where.format(4)):
            use(capture, 4)
        with pytest.raises(InvalidInputError, match=where.format(1)):
            use(capture[3:], 1)
    with pytest.raises(TokenOutOfRangeError, match=r"next_tokens of row 5 \(row 5 of "):
        capture[5]
    assert [row for row in range(ROWS) if sound(capture, row)] == [0, 1, 2, 3, 5, 6]
    with pytest.raises(InvalidInputError, match=r"draft_logits row 4 of .*mine.safetensors must"):
        save(capture, tmp_path / "other.safetensors")
    assert not list(tmp_path.glob("other*"))


@pytest.mark.parametrize("name", ["contexts", "context_ends"])
def test_texts_have_one_axis(tmp_path: Path, name: str) -> None:
    in_file(tmp_path)
    change_header(tmp_path / NAME, lambda header: header[name]["shape"].append(1))
    for use in (opened, load):
        with pytest.raises(CaptureError, match=r"mine\.safetensors.*one axis"):
            use(tmp_path / NAME)


@pytest.mark.parametrize("ends", [[0, 99, 1], [-1, 1, 2], [5, 3, 9], [2**62, 2**62, 2**62]])
def test_contexts_that_lie_nowhere_are_refused(tmp_path: Path, ends: list[int]) -> None:
    in_file(tmp_path)
    poke(tmp_path / NAME, "context_ends", 0, np.array(ends, dtype="<i8").tobytes())
    for use in (lambda path: list(opened(path)), load):
        with pytest.raises(CaptureError, match=r"mine\.safetensors"):
            use(tmp_path / NAME)


def test_contexts_that_are_no_text_are_refused(tmp_path: Path) -> None:
    in_file(tmp_path)
    without_checks(tmp_path / NAME)
    poke(tmp_path / NAME, "contexts", 0, b"\xff")
    with pytest.raises(CaptureError, match="context of row 1 must be UTF-8"):
        opened(tmp_path / NAME)[1]
    with pytest.raises(CaptureError, match="must be UTF-8"):
        load(tmp_path / NAME)


def test_a_file_that_changes_or_goes_is_named(tmp_path: Path) -> None:
    capture = in_file(tmp_path)
    path = tmp_path / NAME
    poke(path, "positions", 0, bytes(8))
    os.utime(path, ns=(0, 0))
    with pytest.raises(CaptureError, match=r"mine\.safetensors: was changed"):
        capture.distributions(4)
    path.unlink()
    with pytest.raises(CaptureError, match=r"mine\.safetensors: there is no such file"):
        capture[4]


@pytest.mark.parametrize("path", ["", "a\0b", 3, None])
def test_what_is_no_path_is_refused(path: object) -> None:
    for use in (lambda: load(path), lambda: save(example(), path)):
        with pytest.raises(CaptureError, match="must be the path of a file"):
            use()


@pytest.mark.parametrize("name", ["target_logits", "contexts", "next_tokens"])
def test_a_damaged_row_is_named_when_it_is_met(tmp_path: Path, name: str) -> None:
    """A changed number is still valid: only the checksum detects the change."""
    in_file(tmp_path)
    poke(tmp_path / NAME, name, 4 * V * 4 if name == "target_logits" else 1, b"\x01")
    capture = opened(tmp_path / NAME)
    with pytest.raises(CaptureError, match=r"mine\.safetensors: row [04] is damaged"):
        capture[4]
    with pytest.raises(CaptureError, match="is damaged"):
        load(tmp_path / NAME)
    if name == "target_logits":
        assert sound(capture, 3)


def test_damaged_labels_are_refused(tmp_path: Path) -> None:
    in_file(tmp_path)
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b'"synthetic": "false"', b'"synthetic": "true" '))
    with pytest.raises(CaptureError, match="the checksum of the labels differs"):
        load(path)
