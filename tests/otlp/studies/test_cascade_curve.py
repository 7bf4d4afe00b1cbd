"""The quality-cost curve of cascades: its end points are known in closed form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from otlp.cli import main
from otlp.decode import Sampling, TabularModel, random_pair
from otlp.decode.cascades import BiLD, TokenV3
from otlp.errors import InvalidInputError
from otlp.studies.cascade_curve import METHODS, Point, curve, thresholds
from otlp.studies.cascade_observed import Observed, observe
from otlp.studies.cascade_summary import summaries
from otlp.studies.estimate import Estimate

Pair = tuple[TabularModel, TabularModel]
TEXTS = [np.array([0, 2, 1, 1, 0]), np.array([2, 0, 1, 2])]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return random_pair(3, 7, np.random.default_rng(5))


@pytest.fixture(scope="module")
def observed(pair: Pair) -> Observed:
    return observe(*pair, TEXTS, length=2, skip=1, stride=2, responses=4)


def test_without_leniency_quality_is_the_targets(pair: Pair, observed: Observed) -> None:
    laws = [[m.distribution(t[:i].tolist()) for t in TEXTS for i in range(1, t.size)] for m in pair]
    tokens = [int(token) for text in TEXTS for token in text[1:]]
    chances = [law[token] for law, token in zip(laws[1], tokens, strict=True)]
    for method in ("lossy", "lossy-beta-1", "chow", "bild"):
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
    """Equal texts have no variance, whatever their tokens; one text has no interval."""
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
        sequential = method.startswith(("sequential", "sequence", "oracle"))
        least = 0.0 if sequential else 1.0 / 3.0 - 1e-12
        assert all(least <= point.calls.mean <= 1.0 for point in points)


def test_a_sequential_cascade_has_the_quality_of_the_speculative_one(observed: Observed) -> None:
    for rule, kind in [("chow", "sequential"), ("diff", "oracle"), ("opt", "oracle")]:
        for fast, slow in zip(
            curve(observed, rule), curve(observed, f"{kind}-{rule}"), strict=True
        ):
            assert (fast.log_likelihood, fast.accuracy) == (slow.log_likelihood, slow.accuracy)
            assert slow.calls == slow.deferral == fast.deferral
            assert slow.draft_calls.mean == 1.0
            assert fast.draft_calls.mean == pytest.approx(3.0 * fast.calls.mean)


def test_bild_as_published_by_hand(pair: Pair) -> None:
    """Along one text and along its drafts, following the published algorithm."""
    text, alpha, length = np.array([0, 2, 1, 1, 0, 2]), 1.0, 2
    observed = observe(*pair, [text], length=length, skip=1, stride=1)
    laws = [[m.distribution(text[:i].tolist()) for i in range(1, text.size)] for m in pair]
    for fallback in (0.1, 0.5, 0.9):
        (point,) = curve(observed, f"bild-fallback-{fallback:g}", [alpha])
        chances, drafted = [], 0
        for q, p, token in zip(*laws, text[1:], strict=True):
            stops = drafted == length or q.max() < 1 - fallback or BiLD(alpha).defers(q, p)
            chances.append((p if stops else q)[token])
            drafted = 0 if stops else drafted + 1
        assert point.accuracy.mean == pytest.approx(np.mean(chances))
        tokens, asked = 0, 0
        paths = zip(observed.draft_path, observed.target_path, strict=True)
        for qs, ps in paths:
            sure = [q.max() >= 1 - fallback for q in qs]
            asked += 2 if sure[0] else 1
            kept = [
                s and not BiLD(alpha).defers(q, p) for s, q, p in zip(sure, qs, ps, strict=True)
            ]
            tokens += 1 + (kept[0] + (kept[0] and kept[1]))
        assert point.calls.mean == pytest.approx(len(observed.drafts) / tokens)
        assert point.draft_calls.mean == pytest.approx(asked / tokens)


def test_responses_have_the_law_of_equation_1(pair: Pair) -> None:
    """With many responses the deferral rate is exact enough to compare laws."""
    seen = observe(*pair, TEXTS, length=2, skip=1, stride=1, responses=4000)
    for alpha in (0.6, 0.8):
        logs = []
        for text in TEXTS:
            for at in range(1, text.size - 1):
                q, p = (
                    m.distribution(text[:at])[:, None]
                    * np.array([m.distribution([*text[:at], v]) for v in range(3)])
                    for m in pair
                )
                kept = q >= 1.0 - alpha
                law = q * kept + p * q[~kept].sum()
                logs.append(np.log(law[text[at], text[at + 1]]) / 2)
        (point,) = curve(seen, "sequence-chow", [alpha])
        assert point.log_likelihood.mean == pytest.approx(np.mean(logs), abs=0.03)
        assert point.calls == point.deferral and point.accuracy is None
    ends = curve(seen, "sequence-chow", [0.0, 1.0])
    assert [point.calls.mean for point in ends] == [1.0, 0.0]
    assert ends[0].log_likelihood_gain.mean == pytest.approx(0.0, abs=1e-12)


def greedy_pair(pair: Pair) -> Pair:
    for model in pair:
        model.sampling = Sampling(0.0)
    return pair


def test_greedy_decoding_is_judged_by_its_likeliest_tokens() -> None:
    pair = greedy_pair(random_pair(3, 7, np.random.default_rng(5)))
    seen = observe(*pair, TEXTS, length=2, skip=1, stride=1)
    laws = [(q, p, t) for (q, p), t in zip(seen.pairs, seen.tokens, strict=True)]
    assert 0.0 < seen.targets.min()  # rules use the distributions, not the most likely tokens
    for method in ("lossy", "token-v3"):
        for alpha in (0.0, 0.4):
            (point,) = curve(seen, method, [alpha])
            kept = [p[q.argmax()] >= (1 - alpha) * p.max() for q, p, _ in laws]
            found = [(q if k else p).argmax() == t for k, (q, p, t) in zip(kept, laws, strict=True)]
            assert point.accuracy.mean == pytest.approx(np.mean(found))
            assert point.log_likelihood is None
            assert point.rejection.mean == pytest.approx(1 - np.mean([
                k or q.argmax() == p.argmax() for k, (q, p, _) in zip(kept, laws, strict=True)
            ]))  # fmt: skip
    assert curve(seen, "opt", [0.3]) == [
        Point(**(vars(point) | {"method": "opt"})) for point in curve(seen, "diff", [0.3])
    ]
    assert TokenV3(0.0).defers(*laws[0][:2]).sum() == 2
    with pytest.raises(InvalidInputError, match="temperature above 0"):
        curve(seen, "sequence-chow")
    pair[0].sampling = Sampling(1.0)
    with pytest.raises(InvalidInputError, match="set both"):
        observe(*pair, TEXTS, skip=1)


def test_the_two_metrics_of_table_2() -> None:
    def point(alpha: float, gain: float, calls: float, method: str = "chow") -> Point:
        def exactly(value: float) -> Estimate:
            return Estimate(value, value, value)

        accuracy = exactly(0.5 + gain)
        return Point(method, alpha, None, None, accuracy, exactly(gain), None,
                     exactly(calls), exactly(1.0), None)  # fmt: skip

    points = [point(0.1, 0.0, 0.9), point(0.2, 0.01, 0.5), point(0.3, -0.1, 0.1)]
    points += [point(0.0, 0.2, 0.1, "oracle-diff"), point(0.0, 0.0, 1.0, "sequential-chow")]
    found = summaries(points, 0.1)
    assert [(row.method, row.quality) for row in found] == [
        (method, quality)
        for method in ("chow", "sequential-chow")
        for quality in ("accuracy", "log_likelihood")
    ]
    assert found[0].speed_up == pytest.approx(1 / 0.6) and found[0].speed_up_alpha == 0.2
    assert (found[0].best, found[0].best_alpha) == (0.51, 0.2)
    assert found[1].speed_up is None and found[1].best is None
    assert found[2].speed_up == pytest.approx(1 / 1.1) and found[2].best is None
    for cost in (-0.1, np.nan):
        with pytest.raises(InvalidInputError, match="draft_cost"):
            summaries(points, cost)


def test_bad_input(pair: Pair, observed: Observed) -> None:
    with pytest.raises(InvalidInputError, match="unknown cascade 'odds'"):
        curve(observed, "odds")
    with pytest.raises(InvalidInputError, match="alpha"):
        curve(observed, "lossy", [1.0])
    with pytest.raises(InvalidInputError, match=r"text 2 must have more than 4 tokens .*, got 4"):
        observe(*pair, TEXTS, skip=4)
    with pytest.raises(InvalidInputError, match="texts must not be empty"):
        observe(*pair, [])
    with pytest.raises(InvalidInputError, match="alpha"):
        curve(observed, "sequence-chow", [1.1])
    with pytest.raises(InvalidInputError, match="needs responses"):
        curve(observe(*pair, TEXTS, length=2, skip=1), "sequence-chow")
    with pytest.raises(InvalidInputError, match=r"no text has 3 tokens"):
        curve(observe(*pair, TEXTS[1:], length=3, skip=3, responses=1), "sequence-chow")
    with pytest.raises(InvalidInputError, match="both must have the same vocabulary"):
        observe(pair[0], random_pair(4, 7, np.random.default_rng(0))[1], TEXTS)
    with pytest.raises(InvalidInputError, match=r"length must be .*, got 0"):
        observe(*pair, TEXTS, length=0)


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers")
    out, figure = tmp_path / "c.json", tmp_path / "c.png"
    words = [
        "cascade",
        "--cascades",
        "chow,token-v3,sequence-chow",
        "--threshold",
        "0.3,1",
        "--limit",
        "1",
    ]
    words += ["--length", "2", "--device", "cpu", "--json", str(out), "--figure", str(figure)]
    result = CliRunner(catch_exceptions=False).invoke(main, words)
    assert result.exit_code == 0
    points = json.loads(out.read_text())["points"]
    names = [name for name in ("chow", "token-v3", "sequence-chow") for _ in range(2)]
    assert [point["method"] for point in points] == names
    assert points[1]["deferral"] == [0.0, None, None]
    assert figure.stat().st_size
