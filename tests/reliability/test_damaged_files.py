"""Every kind of input file with every damage is refused by name or read correctly.

The tests of each reader cover the values of each field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.cli.prompt_files import read_prompts
from otlp.data.capture import LABELS
from otlp.data.captures import TopCapture, keep_top, load, save
from otlp.data.pairs import read_pairs
from otlp.decode import Calibration, Sampling
from otlp.errors import CaptureError, InvalidInputError, JournalError, OTLPError
from otlp.parallel.journal import Journal
from otlp_lab.commands import audit_server
from otlp_lab.design import Candidate, Statistics
from otlp_lab.servers import Completion
from otlp_lab.tuning.tuned import Tuned
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
    """How to write and read a kind of file, and the error for an invalid file."""

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
        TUNED.to_json(), Tuned.read, "must be a setting of otlp lab tune|cannot read|must be a dict"
    ),
    "statistics": json_of(
        STATISTICS.to_json(),
        Statistics.read,
        "must be acceptance statistics|cannot read|must be a dict",
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
    # zeros are valid texts and logits
    assert refused > (2 if kind.error is JournalError else 55)
    kind.read(tmp_path)


PAIR = np.random.default_rng(0).dirichlet(np.ones(20), size=(2, 3))
LOGS = np.log(PAIR)
SERVERS = {"format": audit_server.FORMAT, "sides": ["a", "b"], "prompts": ["x"]}


def write_pairs(name: str, arrays: Any, folder: Path) -> None:
    path = folder / name
    match path.suffix:
        case ".npz":
            np.savez_compressed(path, p=arrays[0], q=arrays[1])
        case ".npy":
            np.save(path, np.stack(arrays, axis=1))
        case _:
            np.savetxt(path, arrays[:, 0].T, "%.17g", ",", header="p,q", comments="")


def read_own_pairs(name: str, values: Any, folder: Path) -> Any:
    capture = read_pairs(str(folder / name), values)
    return [one.tolist() for row in range(len(capture)) for one in capture.distributions(row)]


def write_answers(folder: Path) -> None:
    with Journal(folder / "mine.jsonl", SERVERS) as journal:
        for number in range(9):
            texts = [asdict(Completion(f" {side}{number}")) for side in "ab"]
            journal.append([{"pair": texts, "time": "2026", "started": [None, 1.0]}])


def read_answers(folder: Path) -> Any:
    path = folder / "mine.jsonl"
    with Journal(path, SERVERS) as journal:
        return [audit_server.read_entry(one, path) for one in journal.entries()]


def write_prompts(name: str, folder: Path) -> None:
    prompts = [json.dumps(one) for one in ("a b", {"prompt": "c"}, "d")]
    text = "\n".join(prompts) if name.endswith("l") else f"[{prompts[0]}, {prompts[2]}]"
    (folder / name).write_text(text)


def of_capture(folder: Path) -> Any:
    capture = load(folder / "mine")
    labels = [getattr(capture, name) for name in LABELS]
    rows = [(capture[row].context, capture[row].next_token) for row in range(len(capture))]
    laws = [one.tolist() for row in range(len(capture)) for one in capture.distributions(row)]
    return [*labels, *rows, *laws]


def own(write: Callable[[Path], Any], read: Callable[[Path], Any], checked: bool) -> Any:
    return write, read, checked


READERS = {
    f"{kind} of {values}": own(
        partial(write_pairs, f"mine{kind}", arrays),
        partial(read_own_pairs, f"mine{kind}", values),
        kind == ".npz",
    )
    for kind in (".npz", ".npy", ".csv")
    for values, arrays in (("probabilities", PAIR), ("logits", LOGS))
} | {
    "answers of servers": own(write_answers, read_answers, True),
    "journal": own(write_journal, lambda folder: [*entries(folder)], True),
    "capture": own(partial(write_capture, dtype="float32"), of_capture, True),
    "top capture": own(partial(write_capture, kept=3), of_capture, True),
    "tuned setting": own(
        partial(write_text, TUNED.to_json()), lambda folder: Tuned.read(folder / "mine"), False
    ),
    "statistics": own(
        partial(write_text, STATISTICS.to_json()),
        lambda folder: Statistics.read(folder / "mine"),
        False,
    ),
    "calibration": own(
        partial(write_text, Calibration(1.0, 0.1, "t", "d").to_json()),
        lambda folder: Calibration.read(folder / "mine"),
        False,
    ),
    "prompts": own(
        partial(write_prompts, "mine.json"),
        lambda folder: read_prompts(str(folder / "mine.json"), None),
        False,
    ),
    "lines of prompts": own(
        partial(write_prompts, "mine.jsonl"),
        lambda folder: read_prompts(str(folder / "mine.jsonl"), None),
        False,
    ),
}
"""Writer and reader of each kind of file, and whether a checksum detects changes."""


def entries(folder: Path) -> list[Any]:
    with Journal(folder / "mine", HEADING) as journal:
        return list(journal.entries())


def one_byte(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content)))
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_two_thousand_damages(name: str, tmp_path: Path) -> None:
    """Refused in one line, or read; with a checksum, equal to the intact file or its beginning."""
    write, read, checked = READERS[name]
    write(tmp_path)
    sound = read(tmp_path)
    damages = [*DAMAGES.values(), one_byte, one_byte]
    whole = {path: path.read_bytes() for path in files(tmp_path)}
    rng = np.random.default_rng(20)
    for _ in range(2_000):
        path = [*whole][rng.integers(len(whole))]
        path.write_bytes(damages[rng.integers(len(damages))](whole[path], rng))
        try:
            found = read(tmp_path)
        except OTLPError as error:
            assert "mine" in str(error)
        else:
            assert not checked or found == sound[: len(found)]
        path.write_bytes(whole[path])


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
    """Truncated journals are valid, as a prefix of the work: test_journal.py."""
    for path in files(tmp_path):
        whole = path.read_bytes()
        for length in range(0, len(whole.rstrip()), 1 + len(whole) // 300):
            path.write_bytes(whole[:length])
            with pytest.raises(kind.error, match=kind.words):
                kind.read(tmp_path)
        path.write_bytes(whole)
