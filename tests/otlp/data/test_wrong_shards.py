"""What is wrong with a shard, an index or a row that lies in one is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.captures import Capture, keep_top, load, save
from otlp.errors import CaptureError, InvalidInputError, TokenOutOfRangeError
from tests.damaged_files import change_header, files_of_at_most
from tests.example_captures import (
    ROWS,
    V,
    check_same,
    example,
    in_shards,
    shard,
)
from tests.processes import run_python


def poke(path: Path, tensor: str, at: int, content: bytes) -> None:
    """Overwrite bytes of a tensor."""
    whole = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(whole[:8], "little")
    start = end + json.loads(whole[8:end])[tensor]["data_offsets"][0] + at
    whole[start : start + len(content)] = content
    path.write_bytes(whole)


def test_a_row_that_is_none_is_named_when_it_is_met(tmp_path: Path) -> None:
    index = in_shards(tmp_path)
    nan = np.array(np.nan, dtype="<f4").tobytes()
    poke(shard(tmp_path, 2), "draft_logits.00002", (1 * V + 2) * 4, nan)
    poke(shard(tmp_path, 2), "next_tokens.00002", 2 * 8, np.int64(V).tobytes())
    capture = load(index)
    where = r"draft_logits row {} \(row 1 of .*mine-00002-of-00003.safetensors\) holds nan"
    for use in (lambda c, row: c[row], lambda c, row: c.distributions(row)):
        with pytest.raises(InvalidInputError, match=where.format(4)):
            use(capture, 4)
        with pytest.raises(InvalidInputError, match=where.format(1)):
            use(capture[3:], 1)
    with pytest.raises(TokenOutOfRangeError, match=r"next_tokens of row 5 \(row 2 of "):
        capture[5]
    assert [row for row in range(ROWS) if sound(capture, row)] == [0, 1, 2, 3, 5, 6]
    with pytest.raises(InvalidInputError, match=r"draft_logits row 1 of .*00002-of-\S* holds nan"):
        save(capture, tmp_path / "other.safetensors", shard_bytes=1)
    assert not list(tmp_path.glob("other*"))


def sound(capture: Capture, row: int) -> bool:
    try:
        return bool(np.isfinite(capture.distributions(row)).all())
    except InvalidInputError:
        return False


@pytest.mark.parametrize("number", [1, 3])
def test_a_shard_that_is_missing_or_cut_is_named_at_once(tmp_path: Path, number: int) -> None:
    index = in_shards(tmp_path)
    path = shard(tmp_path, number)
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\0"):
        path.write_bytes(wrong)
        with pytest.raises(CaptureError, match=path.name):
            load(index)
    path.unlink()
    with pytest.raises(CaptureError, match=f"{path.name}: there is no such file"):
        load(index)
    os.mkfifo(path)
    with pytest.raises(CaptureError, match=f"{path.name}: cannot be read"):
        load(index)


def edit(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda index: index["metadata"].update(changes)


def point(tensor: str, to: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda index: index["weight_map"].update({tensor: to})


def all_of(number: int, to: str) -> Callable[[dict[str, Any]], Any]:
    def change(index: dict[str, Any]) -> None:
        for tensor in index["weight_map"]:
            if tensor.endswith(str(number)):
                index["weight_map"][tensor] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(rows=[3, 2, 2]), "00002-of-00003.safetensors: its rows is 3, but 2"),
        (edit(rows=[3, 3]), "3 shards, and rows for 2"),
        (edit(rows="333"), "its rows is 3, but '3'"),
        (edit(rows=5), "no index"),
        (edit(vocab_size=6), "its vocab_size is 5, but 6"),
        (edit(dtype="float16"), "its dtype is 'float32', but 'float16'"),
        (edit(target_model="other"), "its target_model is 'large', but 'other'"),
        (edit(synthetic=True), "its synthetic is 'false', but True"),
        (edit(format="other"), "format is 'other'"),
        (lambda index: index.pop("metadata"), "no index"),
        (lambda index: index.update(metadata=3, weight_map=[]), r"mine\.safetensors\.index\.json"),
        (lambda index: index["metadata"].pop("tokenizer"), "its tokenizer is 'letters', but None"),
        (lambda index: index["weight_map"].clear(), "names no file|0 shards"),
        (lambda index: index["weight_map"].pop("positions.00002"), "has other tensors"),
        (point("other.00002", "mine-00002-of-00003.safetensors"), "has other tensors"),
        (point("positions.00002", "mine-00001-of-00003.safetensors"), "shard 00002 lies in"),
        (point("positions", "mine-00001-of-00003.safetensors"), "no tensor of a shard"),
        (point("positions.00009", "mine-00009-of-00003.safetensors"), "not numbered"),
        (point("positions.00001", 3), "no tensor of a shard"),
        (all_of(2, "mine-00001-of-00003.safetensors"), "one file twice"),
        (all_of(2, "../mine-00002-of-00003.safetensors"), "does not lie in its folder"),
        (all_of(2, "/etc/passwd"), "does not lie in its folder"),
        (all_of(2, "a\\b"), "does not lie in its folder"),
        (all_of(2, "C:b"), "does not lie in its folder"),
        (all_of(2, ".."), "does not lie in its folder"),
        (all_of(2, "a\0b"), "does not lie in its folder"),
        (all_of(2, ""), "does not lie in its folder"),
        (all_of(2, "\ud800"), "cannot be read"),
        (all_of(2, "x" * 300), "cannot be read"),
    ],
)
def test_an_index_that_disagrees_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    index = in_shards(tmp_path)
    content = json.loads(index.read_text())
    change(content)
    index.write_text(json.dumps(content))
    with pytest.raises(CaptureError, match=message):
        load(index)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(example(seed=1), target_model="another"), "its target_model is 'large', but 'ano"),
        (example(dtype="float16"), "types|dtype"),
        (example(vocab_size=6), r"has shape \(3, 6\)|has shape \(3, 5\)"),
        (keep_top(example(), 3), "has other tensors"),
        (example(seed=1), "its fingerprint is '[0-9a-f]{32}', but '[0-9a-f]{32}' by mine"),
    ],
)
def test_a_shard_of_another_capture_is_named(tmp_path: Path, other: Capture, message: str) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    index = in_shards(tmp_path)
    save(other[:3], folder / "mine.safetensors", shard_bytes=1_000_000)
    (folder / "mine-00001-of-00001.safetensors").replace(shard(tmp_path, 1))
    with pytest.raises(CaptureError, match=message):
        load(index)


def test_an_index_of_two_kinds_of_captures_is_refused(tmp_path: Path) -> None:
    """Though each shard has what the index says."""
    index = in_shards(tmp_path)
    whole = json.loads(index.read_text())
    (tmp_path / "top").mkdir()
    save(keep_top(example(), 3), tmp_path / "top" / "top.safetensors", shard_bytes=220)
    other = json.loads((tmp_path / "top" / "top.safetensors.index.json").read_text())["weight_map"]
    name = next(name for tensor, name in other.items() if tensor.endswith("2"))
    (tmp_path / "top" / name).replace(shard(tmp_path, 2))
    kept = {key: to for key, to in whole["weight_map"].items() if not key.endswith("2")}
    kept |= {key: shard(tmp_path, 2).name for key in other if key.endswith("2")}
    index.write_text(json.dumps({"metadata": whole["metadata"], "weight_map": kept}))
    with pytest.raises(CaptureError, match="has tensors of other types"):
        load(index)


@pytest.mark.parametrize("name", ["contexts", "context_ends"])
@pytest.mark.parametrize("load_one", [True, False])
def test_texts_have_one_axis(tmp_path: Path, name: str, load_one: bool) -> None:
    index = in_shards(tmp_path)
    path = shard(tmp_path, 1)
    change_header(path, lambda header: header[f"{name}.00001"]["shape"].append(1))
    with pytest.raises(CaptureError, match=r"00001-of-00003.*one axis"):
        load(path if load_one else index)


def test_shards_whose_rows_shift_are_refused(tmp_path: Path) -> None:
    """As many rows in all, but not in each file."""
    index = in_shards(tmp_path, example(rows=6))

    def shift(header: dict[str, Any], number: int, rows: tuple[int, int]) -> None:
        names = [f"{model}_logits.{number:05d}" for model in ("target", "draft")]
        begin = header[names[0]]["data_offsets"][0]
        for name, count in zip(names, rows, strict=True):
            end = begin + 4 * V * count
            header[name] |= {"shape": [count, V], "data_offsets": [begin, end]}
            begin = end

    for number, rows in ((1, (2, 4)), (2, (4, 2))):
        change_header(shard(tmp_path, number, 2), partial(shift, number=number, rows=rows))
    with pytest.raises(CaptureError, match=r"00001-of-00002\.safetensors: its target_logits"):
        load(index)


@pytest.mark.parametrize("ends", [[0, 99, 1], [-1, 1, 2], [5, 3, 9], [2**62, 2**62, 2**62]])
def test_contexts_that_lie_nowhere_are_refused(tmp_path: Path, ends: list[int]) -> None:
    index = in_shards(tmp_path)
    poke(shard(tmp_path, 1), "context_ends.00001", 0, np.array(ends, dtype="<i8").tobytes())
    with pytest.raises(CaptureError, match="mine-00001-of-00003"):
        list(load(index))
    with pytest.raises(CaptureError, match="mine-00001-of-00003"):
        load(shard(tmp_path, 1))


def test_contexts_that_are_no_text_are_refused(tmp_path: Path) -> None:
    index = in_shards(tmp_path)
    poke(shard(tmp_path, 1), "contexts.00001", 0, b"\xff")
    with pytest.raises(CaptureError, match="context of row 1 is no text"):
        load(index)[1]
    with pytest.raises(CaptureError, match="no text"):
        load(shard(tmp_path, 1))


def test_a_shard_that_changes_or_goes_is_named(tmp_path: Path) -> None:
    capture = load(in_shards(tmp_path))
    path = shard(tmp_path, 2)
    poke(path, "positions.00002", 0, bytes(8))
    os.utime(path, ns=(0, 0))
    with pytest.raises(CaptureError, match=r"00002-of-00003\.safetensors: was changed"):
        capture.distributions(4)
    path.unlink()
    with pytest.raises(CaptureError, match=r"00002-of-00003\.safetensors: there is no such file"):
        capture[4]
    assert sound(capture, 0) and sound(capture, 6)


@pytest.mark.parametrize("folder", [".", "sub"])
def test_a_folder_of_none_or_two_captures_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(CaptureError, match="0 indexes and 0 safetensors"):
        load(tmp_path / folder)
    save(example(), tmp_path / folder / "one.safetensors")
    check_same(load(tmp_path / folder), example())
    save(example(), tmp_path / folder / "two.safetensors")
    with pytest.raises(CaptureError, match="0 indexes and 2 safetensors"):
        load(tmp_path / folder)


def test_a_full_disk_leaves_no_shard(tmp_path: Path) -> None:
    capture = example(rows=60, vocab_size=100)
    for limit in (1_500, 20_000):  # of a shard; of the index, which is longer than the shards
        with files_of_at_most(limit), pytest.raises(CaptureError, match="cannot be written"):
            save(capture, tmp_path / "mine.safetensors", shard_bytes=1)
        assert not list(tmp_path.iterdir())


KILLED = """
import os, sys
from pathlib import Path
from otlp.data.captures import builtin, load, save
from otlp.errors import CaptureError
from tests.reliability.kill_at_every_step import kill_at

folder, capture = Path(sys.argv[1]), builtin()[:3]
for step in range(1, 100):
    child = os.fork()
    if child == 0:
        kill_at(step, folder)
        save(capture, folder / "mine.safetensors", shard_bytes=1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if (folder / "mine.safetensors.index.json").exists():
        found = load(folder)
        assert [one.position for one in found] == capture.positions.tolist()
        break
    try:
        load(folder / "mine.safetensors")
    except CaptureError:
        continue
    raise AssertionError("half a capture")
print(step)
"""


@pytest.mark.slow
def test_a_killed_save_leaves_a_whole_capture_or_none(tmp_path: Path) -> None:
    # three shards and the index, each opened, synced and renamed
    assert int(run_python("-c", KILLED, tmp_path)) > 8


def test_shards_replace_nothing(tmp_path: Path) -> None:
    index = in_shards(tmp_path)
    content = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CaptureError, match="is there already"):
        in_shards(tmp_path, example(seed=1))
    assert content == {path: path.read_bytes() for path in tmp_path.iterdir()}
    index.unlink()
    save(example(), tmp_path / "mine.safetensors")
    with pytest.raises(CaptureError, match=r"mine\.safetensors: is there already"):
        in_shards(tmp_path)
    with pytest.raises(CaptureError, match="cannot be written"):
        save(example(), tmp_path / "absent" / "mine", shard_bytes=100)
    for path in ("", "a\0b", 3, None):
        for use in (lambda: load(path), lambda: save(example(), path)):  # noqa: B023
            with pytest.raises(CaptureError, match="must be the path of a file"):
                use()
    for wrong in (0, -1, 1.5, "1GB"):
        with pytest.raises(InvalidInputError, match="shard_bytes"):
            save(example(), tmp_path / "new", shard_bytes=wrong)  # type: ignore[arg-type]
