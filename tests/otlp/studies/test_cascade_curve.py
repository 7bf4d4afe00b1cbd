"""The quality-cost curve of cascades: its ends are known in closed form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from otlp.cli import main
from otlp.decode import TabularModel, random_pair
from otlp.errors import InvalidInputError
from otlp.studies.cascade_curve import METHODS, Observed, curve, observe, thresholds

Pair = tuple[TabularModel, TabularModel]
TEXTS = [np.array([0, 2, 1, 1, 0]), np.array([2, 0, 1, 2])]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return random_pair(3, 7, np.random.default_rng(5))


@pytest.fixture(scope="module")
def observed(pair: Pair) -> Observed:
    return observe(*pair, TEXTS, length=2, skip=1, stride=2)


def test_without_leniency_quality_is_the_targets(pair: Pair, observed: Observed) -> None:
    laws = [[m.distribution(t[:i].tolist()) for t in TEXTS for i in range(1, t.size)] for m in pair]
    tokens = [int(token) for text in TEXTS for token in text[1:]]
    chances = [law[token] for law, token in zip(laws[1], tokens, strict=True)]
    for method in ("lossy", "chow", "bild"):
        (point,) = curve(observed, method, [0.0])
        assert point.log_likelihood.mean == pytest.approx(np.mean(np.log(chances)))
        assert point.accuracy.mean == pytest.approx(np.mean(chances))
        apart = [0.5 * np.abs(q - p).sum() for q, p in zip(*laws, strict=True)]
        assert point.rejection.mean == pytest.approx(np.mean(apart))


def test_following_the_draft_costs_one_call_for_all_tokens(observed: Observed) -> None:
    for method in ("chow", "diff", "opt", "bild", "token-v1", "token-v2", "token-v3"):
        (point,) = curve(observed, method, [1e9])
        assert point.rejection.mean == 0.0
        assert point.calls.mean == pytest.approx(1.0 / 3.0)
        assert point.deferral is None or point.deferral.mean == 0.0


def test_intervals_take_texts_as_units(pair: Pair) -> None:
    """Equal texts do not differ, however much their tokens do; one text has no interval."""
    twice = observe(*pair, TEXTS[:1] * 2, length=2, skip=1, stride=9)
    (point,) = curve(twice, "chow", [0.5])
    for name in ("log_likelihood", "log_likelihood_gain", "accuracy", "accuracy_gain", "rejection"):
        found = getattr(point, name)
        assert found.low == pytest.approx(found.mean) == pytest.approx(found.high)
    once = observe(*pair, TEXTS[:1], length=2, skip=1, stride=9)
    (alone,) = curve(once, "chow", [0.5])
    assert alone.log_likelihood.mean == pytest.approx(point.log_likelihood.mean)
    assert np.isnan(alone.log_likelihood.low)
    assert alone.record()["accuracy"][1:] == [None, None]


def test_gains_are_against_the_target(observed: Observed) -> None:
    (target,) = curve(observed, "lossy", [0.0])
    (lenient,) = curve(observed, "lossy", [0.5])
    assert target.log_likelihood_gain.mean == pytest.approx(0.0, abs=1e-12)
    gain = lenient.log_likelihood.mean - target.log_likelihood.mean
    assert lenient.log_likelihood_gain.mean == pytest.approx(gain)


def test_more_lenience_is_never_dearer_for_lossy_decoding(observed: Observed) -> None:
    points = curve(observed, "lossy")
    for name in ("calls", "rejection"):
        values = [getattr(point, name).mean for point in points]
        assert np.all(np.diff(values) <= 1e-12)


def test_every_method_has_its_thresholds(observed: Observed) -> None:
    for method in METHODS:
        points = curve(observed, method)
        assert tuple(point.alpha for point in points) == thresholds(method)
        assert all(1.0 / 3.0 - 1e-12 <= point.calls.mean <= 1.0 for point in points)


def test_bad_input(pair: Pair, observed: Observed) -> None:
    with pytest.raises(InvalidInputError, match="no cascade 'odds'"):
        curve(observed, "odds")
    with pytest.raises(InvalidInputError, match="alpha"):
        curve(observed, "lossy", [1.0])
    with pytest.raises(InvalidInputError, match="text 2 has 4"):
        observe(*pair, TEXTS, skip=4)
    with pytest.raises(InvalidInputError, match="no texts"):
        observe(*pair, [])
    with pytest.raises(InvalidInputError, match="length is 0"):
        observe(*pair, TEXTS, length=0)


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers")
    out, figure = tmp_path / "c.json", tmp_path / "c.png"
    words = ["cascade", "--cascades", "chow,token-v3", "--threshold", "0.3,1", "--limit", "1"]
    words += ["--length", "2", "--device", "cpu", "--json", str(out), "--figure", str(figure)]
    result = CliRunner(catch_exceptions=False).invoke(main, words)
    assert result.exit_code == 0
    points = json.loads(out.read_text())["points"]
    assert [point["method"] for point in points] == ["chow"] * 2 + ["token-v3"] * 2
    assert points[1]["deferral"] == [0.0, None, None]
    assert figure.stat().st_size
