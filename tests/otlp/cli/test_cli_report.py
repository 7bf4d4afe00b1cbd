"""``otlp report``: numbers equal those of the commands, pages are valid, errors are named."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from otlp.cli.report import _text_temperature
from otlp.cli.report_parts import stamp_of
from otlp.data.captures import keep_top, save
from otlp.data.whole_file import locked
from tests.example_captures import example, make
from tests.otlp.cli.command import done, refused

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[plot]")

ALONE = ("--jobs", 1)
"""Starting workers would take longer than these few rows; one test uses workers."""

VOID = {"meta", "br"}
ODD = "<script>alert(1)</script> $x^2$ {0} \x1b[31m & 'quoted\" \u202e"


class Page(HTMLParser):
    """Parser of a page: balanced tags, unique ids, and requested resources."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("src", "href", "xlink:href") if name in found]
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []
        assert not any(name.startswith("on") for name in found) and tag != "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(path: Path) -> Page:
    found = Page(path.read_text(encoding="utf-8"))
    assert len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert found.headings[0] == "h1" and found.headings.count("h1") == 1
    assert found.headings.count("h2") in (6, 6 + 2)  # With two pairs each answer has a heading.
    return found


def save_arrays(folder: Path) -> Path:
    np.savez(folder / "mine.npz", p=[0.1, 0.6, 0.3], q=[0.5, 0.3, 0.2])
    return folder / "mine.npz"


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    return save_arrays(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Report on arrays to a link, beside a file of the user; return the folder and the message."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "page.html").symlink_to(folder / "place.html")
    (folder / "page.html.parts").mkdir()
    (folder / "page.html.parts" / "notes.txt").write_text("mine")
    words = ("--output", folder / "page.html", "--draft-cost", 0.5, "--node-cost", 0.1, *ALONE)
    return folder, done("report", save_arrays(folder), *words)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report on a capture with odd names, with odd numbers as options."""
    folder = tmp_path_factory.mktemp("odd")
    logits = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    capture = make(
        *logits, target_model=ODD, draft_model="</title><b>", tokenizer=ODD, source=ODD, note=ODD,
        contexts=tuple(f"{ODD} {row}" for row in range(4)), positions=np.arange(4),
        next_tokens=np.arange(4),
    )  # fmt: skip
    save(capture, folder / "odd $x$.safetensors")
    words = "--temperature 0.123456789 --sampling-top-k 1234567 --sampling-top-p 1".split()
    done("report", folder / "odd $x$.safetensors", "--output", folder / "page.html", *words, *ALONE)
    return folder / "page.html"


def without_times(found: Any) -> Any:
    """Return the part of the output that is equal in two runs of a command."""
    if isinstance(found, dict):
        return {k: without_times(v) for k, v in found.items() if k not in ("seconds", "solves")}
    return [without_times(one) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(
    "repeated",
    [
        ("overlap", "one_place", "as_served", "whole_draft", "verification"),
        pytest.param(("round",), marks=pytest.mark.slow),
    ],
)
def test_every_number_is_that_of_the_command_beside_it(
    repeated: tuple[str, ...], tmp_path: Path
) -> None:
    texts = np.random.default_rng(0).normal(size=(2, 28, 6)).astype(np.float32)
    words = [f"text {row // 14} " + "and " * (row % 14) for row in range(28)]
    capture = make(
        *texts, contexts=tuple(words), positions=np.tile(np.arange(14), 2),
        next_tokens=np.arange(28) % 6, source="text decoded from the target at temperature 1",
    )  # fmt: skip
    save(capture, tmp_path / "mine.safetensors")
    written = tmp_path / "numbers.json"
    message = done(
        "report", tmp_path / "mine.safetensors", "--output", tmp_path / "page.html", "--rows", 6,
        "--sampling-top-k", 3, "--json", written, "--draft-cost", 0.25, "--node-cost", 0.01, *ALONE,
    )  # fmt: skip
    page = " ".join(" ".join(read(tmp_path / "page.html").words).split())
    (pair,) = json.loads(written.read_text())["pairs"]
    for sentence in pair["answers"]:
        assert sentence in page and sentence in " ".join(message.split())
    assert list(pair["parts"]) == [
        "overlap", "one_place", "as_served", "whole_draft", "round", "verification",
    ]  # fmt: skip
    swept = {
        name: pair["parts"][name]["result"] for name in ("one_place", "as_served", "whole_draft")
    }
    assert [one["whole_draft"] for one in swept.values()] == [False, False, True]
    assert [one["sampling_top_k"] for one in swept.values()] == [None, 3, 3]
    assert [one["points"][0]["temperature"] for one in swept.values()] == [1.0, 0.7, 0.7]
    best = pair["parts"]["round"]["result"]["budgets"][1]["designs"][0]
    assert f"is best, {best['tokens_per_call_time']:.2f} times as fast as no draft" in page
    assert pair["break_even"][-2]["speed"] == pytest.approx(best["tokens_per_call_time"])
    for part in pair["parts"].values():
        assert not part["reason"] and part["command"] in page
    again = tmp_path / "again.json"
    for part in map(pair["parts"].get, repeated):
        printed = done(*shlex.split(part["command"])[1:], "--json", again)
        assert without_times(json.loads(again.read_text())) == without_times(part["result"])
        if part["result"]["command"] != "bench":  # times differ
            for number in re.findall(r"\d\.\d{2,}", printed):
                assert number in page
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again.json", "mine.safetensors", "numbers.json", "page.html",
    ]  # fmt: skip


def test_two_captures_stand_side_by_side(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        capture = example(rows=3, vocab_size=5, seed=seed, next_tokens=np.full(3, -1))
        save(capture, tmp_path / f"{name}.safetensors")
    save(example(rows=3, vocab_size=6), tmp_path / "wide.safetensors")
    one, two, wide = (tmp_path / f"{name}.safetensors" for name in ("one", "two", "wide"))
    output = tmp_path / "page.html"
    message = done("report", one, two, "--output", output, "--sampling-top-k", 0,
                "--sampling-top-p", 1, *ALONE)  # fmt: skip
    found = read(output)
    assert found.headings.count("h3") == 2 * 6
    assert f"large / small ({one})" in found.words and f"large / small ({two})" in found.words
    assert "points" in message.splitlines()[-2] or "no difference" in message.splitlines()[-2]
    assert "is unknown." in " ".join(found.words)  # the cost of a draft call
    assert "--whole-draft" not in " ".join(found.words)  # no truncation
    assert "the same vocabulary size, got V = 5 and V = 6" in refused(
        "report", one, wide, "--output", tmp_path / "other.html"
    )
    assert not (tmp_path / "other.html").exists()


def test_names_and_texts_of_others_are_escaped(odd: Path) -> None:
    text = odd.read_text(encoding="utf-8")
    found = read(odd)
    assert "<script" not in text and "\x1b" not in text and "</title><b>" not in text
    shown = "<script>alert(1)</script> $x^2$ {0} \\x1b[31m & 'quoted\""
    assert sum(shown in words for words in found.words) > 5


def test_arrays_of_one_row_have_no_interval_and_no_tree(made: tuple[Path, str]) -> None:
    folder, message = made
    assert (
        "The draft shares 60.0% of its probability with the target (1 of 1 rows); there" in message
    )
    assert "The best rule accepts one of two drafts 85.0% of the time" in message
    assert "No tree is recommended: the capture must contain positions and next" in message
    found = read(folder / "page.html").words
    assert "Sampling from the plan is not timed" in " ".join(found)
    assert "Skipped: the capture must contain positions and next" in " ".join(found)
    row = found.index("2 at one position")
    cells = [word for word in found[row : row + 12] if word.strip()]
    # 1.85 tokens; (1.85 - 1 - .2) / 1 and 1.85 / (1 + .2 + .5)
    assert cells[:5] == ["2 at one position", "1.85", "1", "0.650", "1.09"]


def test_a_row_that_holds_no_logits_is_refused_by_its_number(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    save(example(rows=3, vocab_size=5), whole)
    tensors = {name: one for name, one in load_file(whole).items() if "crc32" not in name}
    tensors["target_logits"][1] = np.nan
    with safe_open(whole, framework="np") as file:
        save_file(tensors, path, file.metadata())
    message = refused("report", path, "--output", tmp_path / "page.html")
    assert "target_logits row 1 must have a finite logit and no NaN or +inf, got nan" in message
    assert not list(tmp_path.glob("page.html*"))


def test_a_part_that_is_refused_has_its_reason_on_the_page(tmp_path: Path) -> None:
    """With three kept tokens a top-k of 20 is impossible; all other parts are answered."""
    path = tmp_path / "top.safetensors"
    save(keep_top(example(rows=3, vocab_size=9), 3), path)
    message = " ".join(done("report", path, "--output", tmp_path / "page.html", *ALONE).split())
    assert "- The rows could not be truncated as served: --sampling-top-k" in message
    assert "- A single draft token is accepted " in message
    page = " ".join(read(tmp_path / "page.html").words)
    assert "Skipped: --sampling-top-k" in page
    assert "stores the 3 most likely tokens of each row" in page


def test_the_page_is_written_over_a_link_and_other_files_stay(
    made: tuple[Path, str], arrays: Path, tmp_path: Path
) -> None:
    folder, _ = made
    assert (folder / "page.html").is_symlink() and read(folder / "place.html").words
    assert [path.name for path in (folder / "page.html.parts").iterdir()] == ["notes.txt"]
    (tmp_path / "page.html.parts").write_text("a file")
    assert "page.html.parts" in refused("report", arrays, "--output", tmp_path / "page.html")
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    for name in ("folder.html", "pipe.html"):
        refused("report", arrays, "--output", tmp_path / name)


@pytest.mark.parametrize(
    ("source", "temperature"),
    [
        ("text decoded from the target at temperature 0.6", 0.6),
        ("text decoded from the target at temperature 0.6, top-k 20", 0.6),
        ("text decoded from the target at temperature 1e-05", 1e-05),
        ("text decoded from the target", 1.0),
        ("logs of a server at temperature 0.2", 1.0),
        ("text decoded from the target at temperature 0.7. Prompts of mine", 1.0),
        ("text decoded from the target at temperature e", 1.0),
    ],
)
def test_trees_are_valued_at_the_temperature_of_the_text(source: str, temperature: float) -> None:
    assert _text_temperature(example(source=source)) == temperature


def test_numbers_of_options_are_taken_to_the_last_digit(odd: Path) -> None:
    page = " ".join(read(odd).words)
    assert "--temperature 0.123456789 --sampling-top-k 1234567" in page and "top-p" not in page


def test_a_report_has_its_folder_and_its_files_to_itself(arrays: Path, tmp_path: Path) -> None:
    output, folder = tmp_path / "page.html", tmp_path / "page.html.parts"
    assert "must be different files" in refused(
        "report", arrays, "--output", output, "--json", output
    )
    folder.mkdir()
    opened = os.open(folder, os.O_RDONLY)
    assert locked(opened)
    assert "another report is writing" in refused("report", arrays, "--output", output)
    os.close(opened)
    assert not output.exists()


def test_results_of_other_data_are_not_taken(arrays: Path, tmp_path: Path) -> None:
    """The key of stored results depends only on the contents of the file."""
    before, times = stamp_of(str(arrays)), arrays.stat()
    assert before != stamp_of(str(arrays), "prompts")
    data = arrays.read_bytes()
    arrays.write_bytes(data[:-1] + b"x")
    os.utime(arrays, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamp_of(str(arrays)) != before
    arrays.unlink()
    arrays.write_bytes(data)
    assert stamp_of(str(arrays)) == before
    assert stamp_of(None) != stamp_of("no file") != stamp_of("another")


@pytest.mark.slow
def test_a_capture_is_made_once_and_never_that_of_others(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    output, other = tmp_path / "page.html", tmp_path / "page.safetensors"
    save(example(), other)
    words = ("report", "--output", output, "--limit", 1, "--tokens", 14, "--draft", "skip:1")
    assert "exists already: give it as FILE" in refused(*words)
    other.unlink()
    done(*words)
    assert "exists already: give it as FILE" in refused(*words)


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_an_interrupted_report_goes_on_with_what_is_of_the_same_data(
    changed: bool, arrays: Path, tmp_path: Path
) -> None:
    output, folder = tmp_path / "page.html", tmp_path / "page.html.parts"
    words = [sys.executable, "-m", "otlp", "report", str(arrays), "--output", str(output)]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while not list(folder.glob("*.printed.json")) and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, message = running.communicate(timeout=60)
    assert (
        running.returncode == 130
        and "run the same command to resume" in message
        and not output.exists()
    )
    kept = next(folder.glob("*.printed.json"))
    kept.write_text(json.dumps(["kept from before", *json.loads(kept.read_text())]))
    if changed:
        np.savez(arrays, p=[0.1, 0.6, 0.3], q=[0.4, 0.4, 0.2])
    subprocess.run(words, check=True, capture_output=True)
    page = output.read_text(encoding="utf-8")
    assert ("kept from before" in page) is not changed and not folder.exists()
    assert f"shares {70 if changed else 60}.0% of its probability" in page


@pytest.mark.slow
def test_models_are_captured_first_and_their_calls_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    output = tmp_path / "page.html"
    words = ("report", "--output", output, "--limit", 2, "--tokens", 20, "--device", "cpu")
    message = done(*words, "--draft", "skip:1", "--json", tmp_path / "page.json")
    assert "On this machine at temperature 1" in message and "with shared noise yields" in message
    assert (tmp_path / "page.safetensors").exists() and read(output).words
    (pair,) = json.loads((tmp_path / "page.json").read_text())["pairs"]
    assert pair["capture"] == str(tmp_path / "page.safetensors")
    assert pair["parts"]["decoding"]["result"]["command"] == "decode"
