"""Every kind of file that we read, with every damage: refused by name, or sound.

What each field may hold is tested beside its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.captures import TopCapture, keep_top, load, save
from otlp.decode import Sampling
from otlp.errors import CaptureError, InvalidInputError, JournalError, OTLPError
from otlp.lab.design import Candidate, Statistics
from otlp.lab.tuning.tuned import Tuned
from otlp.sweeps.journal import Journal
from tests.damaged_files import DAMAGES, NOTHING, Damage
from tests.example_captures import DTYPES, example, save_simply

HEADING = {"format": "test-1", "n": [1, 2]}
STATISTICS = Statistics(
    *("small", "large", Sampling(0.5), 2, 100),
    (
        Candidate("paths", (1, 2), 2, 2, 1.5, 0.1),
        Candidate("mixed", (((1, 1), (0, 1)),), 4, 2, 1.7, 0.1),
        Candidate("adaptive-depth", (2, 3, 0.1), 3.5, 3, 1.75, 0.1),
    ),
)
TUNED = Tuned("large", "small", "cpu", "float32", Sampling(0.5, 3), "two-slice", 2, 3, 1.5)


def write_capture(folder: Path, dtype: str = "float32", kept: int = 0) -> None:
    capture = example(dtype=dtype)
    save(keep_top(capture, kept) if kept else capture, folder / "mine")


def write_simply(folder: Path) -> None:
    save_simply(example(), folder / "mine")


def write_journal(folder: Path) -> None:
    with Journal(folder / "mine", HEADING) as journal:
        journal.append([{"row": row, "value": row / 7} for row in range(9)])


def write_text(text: str, folder: Path) -> None:
    (folder / "mine").write_text(text)


def read_capture(folder: Path, kept: int = 0) -> None:
    capture = load(folder / "mine")
    for row in range(len(capture)):
        p, q = capture.distributions(row, 0.7)
        assert np.isfinite(p).all() and np.isfinite(q).all()
        assert isinstance(capture[row].context, str)
    assert isinstance(capture, TopCapture) == bool(kept)


def read_journal(folder: Path) -> None:
    with Journal(folder / "mine", HEADING) as journal:
        assert all(isinstance(entry, dict) for entry in journal.entries())


@dataclass(frozen=True)
class Kind:
    """How one is written into a folder, and read again, and what is said of one that is none."""

    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    error: type[OTLPError] = CaptureError
    words: str = "mine"


def captures(**options: Any) -> Kind:
    read = partial(read_capture, kept=options.get("kept", 0))
    return Kind(partial(write_capture, **options), read)


def json_of(text: str, read: Callable[[Path], Any], words: str) -> Kind:
    write = partial(write_text, text)
    return Kind(write, lambda folder: read(folder / "mine"), InvalidInputError, words)


KINDS = {
    **{f"capture of {dtype}": captures(dtype=dtype) for dtype in DTYPES},
    "simple capture": Kind(write_simply, read_capture),
    "top capture": captures(kept=3),
    "journal": Kind(write_journal, read_journal, JournalError, "mine.*name another file"),
    "tuned setting": json_of(
        TUNED.to_json(), Tuned.read, "no setting of otlp lab tune|cannot read|must be a dict"
    ),
    "statistics": json_of(
        STATISTICS.to_json(), Statistics.read, "no acceptance statistics|cannot read|must be a dict"
    ),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    request.param.write(tmp_path)
    request.param.read(tmp_path)
    return request.param


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("mine*"))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_refused_or_sound(kind: Kind, damage: Damage, tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    whole = {path: path.read_bytes() for path in files(tmp_path)}
    refused = 0
    for _ in range(100):
        path = [*whole][rng.integers(len(whole))]
        path.write_bytes(damage(whole[path], rng))
        try:
            kind.read(tmp_path)
        except OTLPError as error:
            refused += 1
            assert kind.error is InvalidInputError or "mine" in str(error)
        path.write_bytes(whole[path])
    # zeros are sound texts and logits
    assert refused > (2 if kind.error is JournalError else 55)
    kind.read(tmp_path)


def test_what_is_no_such_file_is_refused_and_left_alone(kind: Kind, tmp_path: Path) -> None:
    for content, path in product(NOTHING, files(tmp_path)):
        whole = path.read_bytes()
        path.write_bytes(content)
        if kind.error is JournalError and not content:  # a new one
            kind.read(tmp_path)
            continue
        with pytest.raises(kind.error, match=kind.words):
            kind.read(tmp_path)
        assert path.read_bytes() == content
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=name) for name, kind in KINDS.items() if name != "journal"],
    indirect=True,
)  # fmt: skip
def test_what_is_cut_anywhere_is_refused(kind: Kind, tmp_path: Path) -> None:
    """Journals are the beginning of the work, wherever they are cut: test_journal.py."""
    for path in files(tmp_path):
        whole = path.read_bytes()
        for length in range(0, len(whole.rstrip()), 1 + len(whole) // 300):
            path.write_bytes(whole[:length])
            with pytest.raises(kind.error, match=kind.words):
                kind.read(tmp_path)
        path.write_bytes(whole)
