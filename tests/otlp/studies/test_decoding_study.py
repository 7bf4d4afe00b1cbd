"""Measured decoding runs, captured logits, and the two commands."""

import json
import math
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

from otlp.decode import random_pair
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.studies.decoding import Measurement, Run, Setting, measure, record
from otlp.studies.estimate import ratio
from otlp.studies.timed import Decoding
from tests.otlp.cli.command import refused, run

EMPTY = np.empty(0, dtype=np.int64)


def a_run(prompt, accepted, seconds=1.0):
    tokens = np.arange(sum(accepted) + len(accepted))
    parts = {"draft": 0.5, "target": 0.25, "verification": 0.125, "rest": seconds - 0.875}
    took = Decoding(tokens.size, len(accepted), len(accepted), parts, seconds, math.nan)
    return Run(prompt, 0, tokens, np.array(accepted), 0, took)


def test_a_measurement_sums_over_prompts():
    found = Measurement(Setting("block", 1, 2), (a_run(0, [2, 0]), a_run(1, [1, 1, 2])))
    estimate = found.timed.block_efficiency
    assert estimate.mean == pytest.approx(11 / 5)
    assert estimate.low < 11 / 5 < estimate.high
    np.testing.assert_allclose(found.acceptance, [4 / 5, 2 / 5])
    assert 1 + found.acceptance.sum() == pytest.approx(estimate.mean)
    assert found.timed.shares == pytest.approx(
        {"draft": 0.5, "target": 0.25, "verification": 0.125, "rest": 0.125}
    )
    slow = Measurement(found.setting, (a_run(0, [2, 0], 2.0), a_run(1, [1, 1, 2], 2.0)))
    assert found.timed.speed_up(slow.timed, "wall").mean == pytest.approx(2.0)
    # The same runs at half the speed: the interval of the ratio has zero width.
    assert found.timed.speed_up(slow.timed, "wall").low == pytest.approx(2.0)


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(4).normal(size=9)
    found = ratio(values, np.ones(9))
    low, high = stats.t.interval(0.95, 8, loc=values.mean(), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))
    alone = ratio(values[:1], np.ones(1))
    assert alone.record() == [values[0], None, None]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(400):
        runs = tuple(a_run(i, rng.integers(0, 5, size=rng.integers(10, 30))) for i in range(12))
        estimate = Measurement(Setting("block", 1, 4), runs).timed.block_efficiency
        hits += estimate.low <= 3.0 <= estimate.high
    # binomial with p = 0.95: below 0.91 with probability under 0.1%
    assert hits / 400 > 0.91


def test_runs_are_the_same_again_and_count_their_calls():
    draft, target = random_pair(3, 9, np.random.default_rng(4))
    prompts = [np.array([0]), np.array([1, 2])]
    first, second = (
        measure(draft, target, prompts, Setting("two-slice", 2, 2), max_tokens=4, seeds=(0, 5))
        for _ in range(2)
    )
    assert len(first.runs) == 4
    for one, two in zip(first.runs, second.runs, strict=True):
        np.testing.assert_array_equal(one.tokens, two.tokens)
        assert one.tokens.size >= 4
        assert one.took.rounds == one.accepted.size
        assert one.draft_calls == 2 * one.took.rounds
    assert json.loads(json.dumps(record(first, second)))["paths"] == 2


@pytest.mark.parametrize(
    ("prompts", "setting", "kind", "words"),
    [
        ([EMPTY], Setting("block", 0, 2), InvalidInputError, "K must be .*, got 0"),
        ([EMPTY], Setting("block", 1, 0), InvalidInputError, "L must be .*, got 0"),
        ([EMPTY], Setting("blocks", 1, 2), InvalidInputError, "no verification algorithm 'blocks'"),
        ([EMPTY], Setting("hub", 3, 2), UnsupportedProblemError, "K must be 2"),
        ([], Setting("block", 1, 2), InvalidInputError, "prompts and seeds must not be empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(prompts, setting, kind, words):
    with pytest.raises(kind, match=words):
        measure(*random_pair(3, 8, np.random.default_rng(4)), prompts, setting)


def test_no_tokens_are_refused():
    pair = random_pair(3, 8, np.random.default_rng(4))
    with pytest.raises(InvalidInputError, match=r"tokens must be .*, got 0"):
        measure(*pair, [EMPTY], Setting("block", 1, 2), max_tokens=0)


@pytest.mark.parametrize("command", ["decode", "capture"])
def test_without_torch_the_install_command_is_named(command, tmp_path, monkeypatch):
    for module in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    words = [command, tmp_path / "x.safetensors"] if command == "capture" else [command]
    assert 'pip install -e ".[decode]"' in refused(*words)


@pytest.mark.usefixtures("trained")
def test_decode_prints_and_writes(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("import os\n\ndef main(\n")
    out, figure = tmp_path / "a.json", tmp_path / "a.png"
    result = run(
        *("decode", "--prompts", str(prompts), "--algorithms", "block,two-slice"),
        *("--paths", "1,2", "--length", "2", "--tokens", "3", "--device", "cpu"),
        *("--json", str(out), "--figure", str(figure)),
    )
    assert result.exit_code == 0
    assert "skipped: block with K = 2" in result.output
    found = json.loads(out.read_text())["measurements"]
    names = [(one["algorithm"], one["paths"]) for one in found]
    assert names == [("autoregressive", 1), ("block", 1), ("two-slice", 1), ("two-slice", 2)]
    assert found[0]["block_efficiency"][0] == 1.0
    assert all(len(one["runs"]) == 2 and one["speed_up"][0] > 0.0 for one in found)
    assert figure.stat().st_size


def test_prompts_without_room_are_refused(trained: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match="exceed the context of"):
        measure(*trained, [np.full(510, 7)], Setting("block", 1, 4))
