"""A journal always contains a prefix of the work, for every kind of interruption."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.errors import JournalError
from otlp.parallel.journal import Journal, checksum_of, line_of
from tests.damaged_files import files_of_at_most
from tests.examples import examples

HEADING = {"format": "test-1", "n": [1, 2], "name": "é"}
ENTRIES = [{"row": row, "value": row / 7, "words": "x" * row} for row in range(9)]


def finish(path: Path) -> bytes:
    """Resume after the last complete line, to the end."""
    with Journal(path, HEADING) as journal:
        done = list(journal.entries())
        assert done == ENTRIES[: len(done)]
        for at in range(len(done), len(ENTRIES), 2):
            journal.append(ENTRIES[at : at + 2])
    return path.read_bytes()


@examples(60)
@given(cut=st.integers(0, 1000))
def test_cut_off_anywhere_it_is_finished_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    whole = finish(path)
    heading = whole.index(b"\n") + 1  # written completely or not at all
    path.write_bytes(whole[: heading + cut % (len(whole) - heading)])
    assert finish(path) == whole
    assert finish(path) == whole
    assert [file.name for file in path.parent.iterdir()] == ["j.jsonl"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n": [1]}, r"n must be \[1, 2\] as in the journal, got \[1\]"),
        ({"seed": 3}, "seed must be null as in the journal, got 3"),
        ({"format": "test-2"}, "test-2 journal"),
    ],
)
def test_a_journal_of_other_work_is_refused_by_name(
    change: dict[str, object], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "j.jsonl"
    whole = finish(path)
    with pytest.raises(JournalError, match=named):
        Journal(path, {**HEADING, **change})
    assert path.read_bytes() == whole


def test_a_changed_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = finish(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"{\n", *lines[5:]]))
    with Journal(path, HEADING) as journal, pytest.raises(JournalError, match="line 5"):
        list(journal.entries())


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    whole = finish(path)
    with Journal(path, HEADING) as journal:
        wanted = list(journal.entries())
    for at, byte in enumerate(whole):
        path.write_bytes(whole[:at] + bytes([byte ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            with Journal(path, HEADING) as journal:
                found = list(journal.entries())
        except JournalError as error:
            assert "j.jsonl" in str(error)
        else:  # its last line was incomplete
            assert at == len(whole) - 1 and found == wanted[:-1]


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", HEADING), pytest.raises(JournalError, match="another process"):
        Journal(tmp_path / "j", HEADING)


def test_of_many_that_begin_one_journal_at_a_time_none_loses_its_lines(tmp_path: Path) -> None:
    """Every process that is not refused finds its lines in the file; the header is written once."""
    path, writers = tmp_path / "j", 24

    def write(who: int, barrier: Barrier) -> int:
        barrier.wait()
        try:
            with Journal(path, HEADING) as journal:
                done = len(list(journal.entries()))
                journal.append([{"who": who, "line": line} for line in range(5)])
                return done
        except JournalError:
            return -1

    for _ in range(20):
        path.unlink(missing_ok=True)
        barrier = Barrier(writers)
        with ThreadPoolExecutor(writers) as pool:
            found = list(pool.map(write, range(writers), [barrier] * writers))
        wrote = [who for who, done in enumerate(found) if done >= 0]
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert wrote
        assert path.read_bytes().startswith(line_of(HEADING))
        assert Counter(line["who"] for line in lines[1:]) == dict.fromkeys(wrote, 5)


def test_a_journal_that_is_replaced_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opened file has been replaced by the time it is locked."""
    path, other = tmp_path / "j", tmp_path / "other"
    finish(path)
    whole = finish(other)
    flock, calls = fcntl.flock, list[int]()

    def replaced(file: Any, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            other.replace(path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with Journal(path, HEADING) as journal:
        list(journal.entries())
        journal.append([{"more": 1}])
    assert len(calls) == 2
    assert path.read_bytes() == whole + line_of({"more": 1}, checksum_of(whole))


@pytest.mark.parametrize("path", ["nowhere/j", ".", "\0", "/proc/j", "/dev/null"])
def test_what_cannot_be_written_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(tmp_path / path, HEADING)


@pytest.mark.parametrize("room", [0, 1, 30, 60, 100])
def test_a_full_disk_leaves_whole_lines(room: int, tmp_path: Path) -> None:
    """A file size limit ends a write midway, as a full disk does."""
    whole = finish(tmp_path / "whole")
    path = tmp_path / "j.jsonl"
    with Journal(path, HEADING) as journal:
        assert not list(journal.entries())
        journal.append(ENTRIES[:3])
        there = path.read_bytes()
        limit = files_of_at_most(len(there) + room)
        with limit, pytest.raises(JournalError, match="has free space"):
            journal.append(ENTRIES[3:])
        assert path.read_bytes() == there
        journal.append(ENTRIES[3:5])
    assert finish(path) == whole
