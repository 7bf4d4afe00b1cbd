"""Files are written completely or not at all, and existing files are kept until then."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE

import click
import pytest

import otlp
from otlp import captures
from otlp.cli.output import write_json
from otlp.data.whole_file import place_of, whole_file
from otlp.errors import CaptureError, OutputError
from otlp.export import lp_arrays, write_arrays, write_mps
from otlp.parallel.journal import Journal
from tests.example_captures import example


def write_lp(path: Path) -> None:
    """Write a small program with both writers."""
    lp = lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    write_arrays(lp, path)
    write_mps(lp, path)


def begin_journal(path: Path) -> None:
    """Write the header of a journal."""
    with Journal(path, {"format": "test"}):
        pass


WRITERS = {
    "capture": lambda path: captures.save(example(rows=1), path),
    "program": write_lp,
    "json": lambda path: write_json(path, {}),
    "journal": begin_journal,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_stays_one_and_the_file_behind_it_keeps_its_mode(name: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    shared, link = tmp_path / "shared" / "blob", tmp_path / "mine.file"
    link.symlink_to("shared/blob")
    for mode in (None, 0o600, 0o664):
        if mode is not None:
            shared.write_bytes(b"")
            shared.chmod(mode)
        WRITERS[name](link)
        assert link.is_symlink() and shared.stat().st_size > 0
        assert mode in (None, S_IMODE(shared.stat().st_mode))
    assert [entry.name for entry in shared.parent.iterdir()] == ["blob"]


def test_a_private_file_is_private_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.touch(0o400)
    with whole_file(path) as temporary:
        assert not S_IMODE(temporary.stat().st_mode) & 0o077
        temporary.write_text("secret")
    assert S_IMODE(path.stat().st_mode) == 0o400 and path.read_text() == "secret"


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_ordinary_file_is_refused_and_stays(name: str, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that writing does not wait for a reader
    for path in (pipe, link, Path(os.devnull)):
        with pytest.raises((otlp.errors.OTLPError, click.ClickException), match="regular file"):
            WRITERS[name](path)
    os.close(held)
    assert pipe.is_fifo() and link.is_symlink() and not Path(os.devnull).is_file()


def test_what_is_printed_to_is_no_output_either() -> None:
    """A terminal, a pipe or a file: a rename would separate the file from the process."""
    with pytest.raises(OutputError):
        place_of("/dev/stdout")


def test_a_capture_says_it_as_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="must be a regular file"):
        captures.save(example(rows=1), tmp_path)
