"""Sweeps measure the results of `measure_rules`, each once, despite interruptions."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

import otlp
from otlp.cli import main
from otlp.data.capture import Capture
from otlp.data.spread_rows import spread_rows
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError, JournalError, OTLPError
from otlp.parallel.journal import checksum_of, line_of
from otlp.parallel.rows import CaptureRows, SyntheticRows
from otlp.studies.compare import BOUND, OPTIMUM, measure_rules
from otlp.studies.figures import draw_sweep
from otlp.studies.points import SweepPoint, SweepSetting, by_panel, varying
from otlp.studies.sweep import Grid, sweep
from tests.examples import examples

ROWS = CaptureRows(otlp.captures.builtin(), [3, 80, 159, 3])
GRID = Grid(n=[1, 3], temperature=[0.5, 1.0], top_k=[5, None], rules=["k-seq", "hub"])
SLOW_ENOUGH = ["--synthetic", "300", "--n", "2,3", "--rules", "martingale"]


def test_a_sweep_is_a_comparison_at_every_setting() -> None:
    capture = ROWS.capture
    points = iter(sweep(ROWS, GRID))
    for temperature in GRID.temperature:
        for k in GRID.top_k:
            pairs = [capture.distributions(row, temperature, top_k=k) for row in ROWS.numbers]
            for n in GRID.n:
                wanted = [measure_rules(pair, "iid", n, GRID.rules) for pair in pairs]
                for at, rule in enumerate((*GRID.rules, OPTIMUM, BOUND)):
                    own = [found[at] for found in wanted]
                    point = next(points)
                    setting = point.setting
                    assert (setting.n, setting.temperature, setting.top_k) == (n, temperature, k)
                    assert point.rule == rule
                    assert (point.rows == 0) == (rule == "hub") == bool(point.reason)
                    if point.rows:
                        values = [found.acceptance for found in own]
                        # row 3 occurs twice, in one passage
                        moved = (np.array(values) - np.mean(values)) / 4
                        units = np.array([moved[0] + moved[3], moved[1], moved[2]])
                        half = stdtrit(2, 0.975) * np.sqrt(1.5 * np.sum(units**2))
                        assert point.acceptance.mean == pytest.approx(np.mean(values), abs=1e-15)
                        assert point.acceptance.high - point.acceptance.mean == pytest.approx(half)
    assert next(points, None) is None


Finished = tuple[bytes, list[SweepPoint], int]
"""A journal, points, and the number of measured combinations."""


def measured(journal: Path, **options: Any) -> Finished:
    """Return the journal after a sweep, its points, and the number of new measurements."""
    read, done = 0, 0

    def progress(words: str, count: int) -> None:
        nonlocal read, done
        read, done = (count, done) if words.startswith("reading") else (read, count)

    points = sweep(ROWS, GRID, journal, progress=progress, **options)
    return journal.read_bytes(), points, max(0, done - read)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return measured(tmp_path_factory.mktemp("sweep") / "j.jsonl")


@examples(6)
@given(share=st.floats(0.0, 1.0))
def test_no_row_is_lost_and_none_is_done_twice(
    finished: Finished, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    content, points, count = finished
    assert count == len(ROWS.numbers) * len(GRID.settings) == content.count(b"\n") - 1
    heading = content.index(b"\n") + 1
    cut = content[: heading + int(share * (len(content) - heading))]
    journal = tmp_path_factory.mktemp("cut") / "j.jsonl"
    journal.write_bytes(cut)
    again, resumed, now = measured(journal)
    assert again == content
    assert str(resumed) == str(points)
    assert now == count - (cut.count(b"\n") - 1)


@pytest.mark.parametrize(
    "kept",
    [1.0, 0.3, *(pytest.param(kept, marks=pytest.mark.slow) for kept in (0.6, 0.0))],
    ids=lambda kept: f"{kept:.0%} kept",
)
def test_a_journal_takes_further_settings_and_keeps_those_not_asked_for(
    finished: Finished, tmp_path: Path, kept: float
) -> None:
    lines = finished[0].splitlines(keepends=True)
    journal = tmp_path / "j.jsonl"
    journal.write_bytes(b"".join(lines[: 1 + int(kept * (len(lines) - 1))]))
    before = journal.read_bytes()
    wider = replace(GRID, n=[2, 3], temperature=[1.0, 2.0])
    points = sweep(ROWS, wider, journal)
    assert journal.read_bytes().startswith(before)
    for again in (tmp_path / "fresh.jsonl", journal):
        assert str(sweep(ROWS, wider, again)) == str(points)
    assert str(sweep(ROWS, GRID, journal)) == str(finished[1])
    entries = [json.loads(line) for line in journal.read_bytes().splitlines()[1:]]
    settings_held = {(e["n"], e["temperature"], e["top_k"]) for e in entries}
    assert len(settings_held) == 8 + 8 - 2 and len(entries) == 4 * 14


def test_passages_are_the_units_of_the_intervals() -> None:
    """The means of a few chosen rows therefore estimate the mean of all rows."""
    capture = otlp.captures.builtin()
    grid = Grid(n=[2], rules=[])
    values = np.array([
        otlp.solve(otlp.Problem(p, otlp.IID(q, 2))).acceptance
        for p, q in (capture.distributions(row) for row in range(len(capture)))
    ])  # fmt: skip
    mean = values.mean()
    every = capture, replace(capture, positions=np.full(len(capture), -1))
    for some, units in zip(every, (capture.passages, np.arange(len(capture))), strict=True):
        moved = np.bincount(units, values - mean)[units.min() :] / len(capture)
        half = stdtrit(moved.size - 1, 0.975) * np.sqrt(
            moved.size / (moved.size - 1) * moved @ moved
        )
        found = sweep(some, grid)[0].acceptance
        assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
    for count in (10, 20, 40):
        few = sweep(CaptureRows(capture, spread_rows(len(capture), count)), grid)[0].acceptance
        assert few.low < mean < few.high


def test_a_line_is_a_row_at_a_setting(finished: Finished) -> None:
    lines = [json.loads(line) for line in finished[0].splitlines()]
    assert lines[0]["otlp"] == otlp.__version__
    assert [line["row"] for line in lines[1::8]] == [3, 80, 159, 3]
    kseq = lines[1]["rules"]["k-seq"]
    assert 0.0 < kseq["acceptance"] <= 1.0
    assert kseq["guarantee"] in ("LOSSLESS", "OPTIMAL")
    assert lines[1]["rules"]["hub"]["acceptance"] is None
    assert lines[1]["rules"]["hub"]["reason"]


@pytest.mark.parametrize(
    ("rows", "grid", "named"),
    [
        (ROWS, Grid(n=[1], rules=[]), "rules must be"),
        (ROWS, replace(GRID, time_limit=1.0), "time_limit must be"),
        (ROWS, replace(GRID, top_p=0.9), "top_p must be"),
        (ROWS, replace(GRID, rules=["k-seq"]), "rules must be"),
        (CaptureRows(ROWS.capture, [3, 80, 5, 3]), GRID, "fingerprint must be"),
        (CaptureRows(ROWS.capture, [3, 80]), GRID, "rows must be 4 as in the journal, got 2"),
        (SyntheticRows(4, 1000), GRID, "synthetic must be"),
    ],
)
def test_the_journal_of_another_sweep_is_refused_by_name(
    rows: Any, grid: Grid, named: str, finished: Finished, tmp_path: Path
) -> None:
    journal = tmp_path / "j.jsonl"
    journal.write_bytes(finished[0])
    with pytest.raises(JournalError, match=named):
        sweep(rows, grid, journal)
    assert journal.read_bytes() == finished[0]


@given(at=st.integers(0, 39), side=st.sampled_from(["target_logits", "draft_logits"]))
def test_the_fingerprint_is_of_every_row(at: int, side: str) -> None:
    rng = np.random.default_rng(0)
    labels = dict.fromkeys(("target_model", "draft_model", "tokenizer", "source"), "")
    logits = {
        name: rng.normal(size=(40, 3)).astype("f4") for name in ("target_logits", "draft_logits")
    }
    heading = CaptureRows(Capture(**logits, **labels, synthetic=True)).heading()
    assert CaptureRows(Capture(**logits, **labels, synthetic=True)).heading() == heading
    logits[side][at, 1] += 1.0
    other = CaptureRows(Capture(**logits, **labels, synthetic=True)).heading()
    assert other["fingerprint"] != heading["fingerprint"]


def test_another_version_and_changed_lines_are_refused(finished: Finished, tmp_path: Path) -> None:
    lines = finished[0].splitlines(keepends=True)
    entries = [json.loads(line) for line in lines]
    for entry in entries:
        del entry["check"]
    next(iter(entries[1]["rules"].values()))["acceptance"] = "0"
    typed = line_of(entries[1], checksum_of(lines[0]))
    wrong = {
        "otlp must be": [line_of({**entries[0], "otlp": "0.0.1"}), *lines[1:]],
        "the checksum of line 3 differs": [*lines[:2], *lines[3:]],
        "line 2": [lines[0], typed, *lines[2:]],
        "line 4 differs": [*lines[:3], lines[3].replace(b": 0.", b": 1."), *lines[4:]],
        f"line {len(lines) + 1}": [*lines, lines[-1]],
    }
    for named, changed in wrong.items():
        journal = tmp_path / "j.jsonl"
        journal.write_bytes(b"".join(changed))
        with pytest.raises(JournalError, match=named):
            sweep(ROWS, GRID, journal)


def test_synthetic_rows_are_those_of_the_generator() -> None:
    rows = SyntheticRows(5, 1000, seed=3)
    whole = otlp.synthetic.generate(5, 1000, seed=3)
    parts = [*rows.part(0, 2), *rows.part(2, 9)]
    assert [number for number, _ in parts] == [0, 1, 2, 3, 4]
    for number, one in parts:
        assert np.array_equal(one.target_logits[0], whole.target_logits[number])
        assert np.array_equal(one.draft_logits[0], whole.draft_logits[number])
    later = SyntheticRows(range(2, 5), 1000, seed=3)
    assert [number for number, _ in later] == [2, 3, 4]
    assert later.heading() != SyntheticRows(3, 1000, seed=3).heading()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": []}, {"n": 3}, {"n": [0]}, {"n": ["1"]}, {"temperature": [math.nan]},
        {"temperature": "1"}, {"top_k": [0]}, {"schemes": ["none"]}, {"schemes": [[]]},
        {"rules": ["none"]}, {"rules": "naive"}, {"top_p": 2.0}, {"draft_temperature": 0.0},
        {"time_limit": 0.0},
    ],
)  # fmt: skip
def test_settings_are_refused_before_any_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(OTLPError):
        Grid(**wrong)


def test_rows_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="rows must not be empty"):
        sweep(ROWS.capture[:0])
    with pytest.raises(OTLPError, match="out of range"):
        CaptureRows(ROWS.capture, [10**6])
    for rows, grid in ((3, GRID), (ROWS, {"n": [1]})):
        with pytest.raises(
            InvalidInputError,
            match="rows must be a Capture, CaptureRows or SyntheticRows and grid a Grid",
        ):
            sweep(rows, grid, tmp_path / "j")
    assert not list(tmp_path.iterdir())


class Trouble:
    """Replaces a capture: one row cannot be read, or kills its worker."""

    def __init__(self, deadly: bool) -> None:
        self.deadly = deadly

    def distributions(self, *_: object, **sampling: object) -> tuple[FloatArray, FloatArray]:
        if self.deadly:
            os._exit(1)
        raise ArithmeticError("of another library")


@dataclass(frozen=True, eq=False)
class Troubled(CaptureRows):
    """Six rows, of which the third fails."""

    capture: otlp.captures.Capture = ROWS.capture
    chosen: Sequence[int] = range(6)
    deadly: bool = False

    def part(self, start: int, stop: int) -> list[tuple[int, Any]]:
        good = super().part(start, stop)
        return [(row, Trouble(self.deadly) if row == 2 else one) for row, one in good]


def check_troubled(journal: Path, reason: str) -> None:
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert [line["row"] for line in lines] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    for line in lines:
        found = line["rules"]["naive"]
        assert (found["acceptance"] is None) == (line["row"] == 2)
        assert reason in found["reason"] if line["row"] == 2 else "reason" not in found


def test_whatever_is_wrong_with_a_row_the_others_go_on(tmp_path: Path) -> None:
    points = sweep(Troubled(), Grid([1, 2], rules=["naive"]), tmp_path / "j")
    assert all(point.partial and point.rows == 5 for point in points)
    check_troubled(tmp_path / "j", "ArithmeticError: of another library")


@pytest.mark.slow
def test_a_row_that_kills_its_worker_costs_no_other(tmp_path: Path) -> None:
    sweep(Troubled(deadly=True), Grid([1, 2], rules=["naive"]), tmp_path / "j", jobs=2)
    check_troubled(tmp_path / "j", "died")


@pytest.mark.parametrize("over", ["n", "temperature", "top_k"])
def test_the_figure_has_a_line_a_rule_and_a_panel_a_setting(
    over: str, finished: Finished, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    points = finished[1]
    assert varying(points) == "n"
    assert len(by_panel(points, over)) == 4
    draw_sweep(tmp_path / "x.svg", points, over, "a $title")
    text = (tmp_path / "x.svg").read_text()
    assert ">k-seq</text>" in text
    assert ">hub</text>" not in text
    with pytest.raises(InvalidInputError, match="one of n, temp"):
        draw_sweep(tmp_path / "y.svg", points, "rows")
    with pytest.raises(InvalidInputError, match="0 points"):
        draw_sweep(tmp_path / "y.svg", [], "n")


def test_differences_are_paired_by_passages() -> None:
    """Very different rows, and a rule that is below the optimum by the same amount on each."""
    best = np.array([0.1, 0.3, 0.5, 0.9])
    setting = SweepSetting("iid", 2, 1.0, None)
    top, rule = (
        SweepPoint.of(setting, name, values, "", np.arange(4))
        for name, values in (("optimum", best), ("naive", best - 0.02))
    )
    apart = rule.below(top)
    assert apart.mean == pytest.approx(0.02)
    assert apart.high - apart.low < 1e-12 < rule.acceptance.high - rule.acceptance.low


def test_the_command_writes_table_figure_json_and_journal(tmp_path: Path) -> None:
    words = ["sweep", "--rows", "3", "--n", "1,2", "--top-k", "4,0", "--rules", "k-seq,hub"]
    files = [f"{tmp_path}/new/{name}" for name in ("j.jsonl", "x.svg", "x.json")]
    words += ["--journal", files[0], "--figure", files[1], "--json", files[2]]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "iid, top-k = V" in result.output
    assert "hub on iid" in result.output
    points = json.loads(Path(files[2]).read_text())["points"]
    assert len(points) == 4 * 4
    assert points[0]["row_count"] == 3
    lines = Path(files[0]).read_text().splitlines()
    assert len(lines) == 1 + 3 * 4
    mean = np.mean([json.loads(line)["rules"]["k-seq"]["acceptance"] for line in lines[1::4]])
    assert points[0]["acceptance"][0] == pytest.approx(mean, abs=1e-15)
    again = CliRunner().invoke(main, words)
    assert again.output == result.output
    assert Path(files[0]).read_text().splitlines() == lines


@pytest.mark.slow
def test_killed_and_resumed_by_two_processes_it_is_the_same_to_the_byte(tmp_path: Path) -> None:
    alone, killed = tmp_path / "alone.jsonl", tmp_path / "killed.jsonl"
    assert CliRunner().invoke(main, ["sweep", *SLOW_ENOUGH, "--journal", str(alone)]).exit_code == 0
    words = [sys.executable, "-c", "from otlp.cli import main; main()", "sweep", *SLOW_ENOUGH]
    words += ["--journal", str(killed)]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)
    while process.poll() is None and (not killed.exists() or killed.stat().st_size < 20_000):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = killed.read_bytes()
    assert alone.read_bytes().startswith(done[: done.rindex(b"\n") + 1])
    assert len(done) < alone.stat().st_size
    subprocess.run([*words, "--jobs", "2"], check=True, stdout=subprocess.DEVNULL)
    assert killed.read_bytes() == alone.read_bytes()


def test_the_distance_from_the_optimum_is_in_the_record_paired() -> None:
    points = sweep(otlp.captures.builtin()[:20], Grid(n=[4], rules=["naive"]))
    naive, optimum, _ = points
    found = naive.record(optimum)["below_optimum"]
    apart = optimum.values - naive.values
    assert found[0] == pytest.approx(apart.mean()) and found[0] > 0.0
    # Acceptances vary more between rows than between rules on a row.
    assert found[2] - found[1] < naive.acceptance.high - naive.acceptance.low
    assert optimum.record(optimum)["below_optimum"][0] == 0.0
