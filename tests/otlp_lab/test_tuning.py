"""Predicted tokens per second, and measured times of decoding methods."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otlp.decode import TabularModel, iid_paths, prefix_tree, random_pair
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate
from otlp.studies.timed import Decoding
from otlp_lab.design import Renewal, tournament_profile
from otlp_lab.design.written_texts import with_draft, write_text
from otlp_lab.tuning.loop_costs import Bench, measure_costs
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting, grid
from otlp_lab.tuning.prediction import TunedTexts, agreement, predict, target_only_gain
from otlp_lab.tuning.round_costs import RoundCosts, corners, may_win
from otlp_lab.tuning.side_by_side import race, round_way
from tests.tiny_models import tiny

PROMPT = np.array([0])


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return random_pair(2, 14, np.random.default_rng(0))


@pytest.fixture(scope="module")
def texts(pair: tuple[Any, Any]) -> dict[Any, Any]:
    rng = np.random.default_rng(1)
    return {None: [write_text(*pair, PROMPT, 12, rng) for _ in range(8)]}


def test_costs_are_found_again_from_some_settings() -> None:
    true = RoundCosts(
        5.0, {n: 5.0 + 0.25 * n for n in range(65)}, (1.0, 0.25, 0.5, 0.125), (0.5, 0.125, 0.25)
    )
    trees = [(2, 2), (2, 1, 2), (1, 3, 2, 2), (4, 4)]
    wanted = grid((1, 2, 4, 8), (1, 2, 3, 4), trees, (None, 0.5))
    measured = {
        one: {
            "target": true.call(one.nodes),
            "draft": 1.0 + 0.25 * one.widths[0] + 0.5 * (one.length - 1)
            + 0.125 * sum(one.widths[:-1]),
            "verification": 0.125 * one.nodes + 0.25 * one.nodes * (one.algorithm == "tournament"),
            "rest": 0.5,
        }
        for one in corners(wanted)
    }  # fmt: skip
    assert len(measured) == 11 < len(wanted)
    found = RoundCosts.fitted(5.0, measured)
    for one in [PLAIN, *wanted, LoopSetting((8,) + 7 * (1,))]:
        assert found.seconds(one) == pytest.approx(true.seconds(one), rel=1e-9)


def test_what_cannot_win_is_told_from_what_may() -> None:
    def known(mean: float, high: float) -> Estimate:
        return Estimate(mean, 2 * mean - high, high)

    short, wide, long, tree = (LoopSetting(one) for one in ((1,), (4,), (1, 1, 1), (2, 2, 2)))
    gains = {PLAIN: known(1.0, 1.0), short: known(1.5, 1.6), wide: known(1.6, 1.7)}
    gains |= {long: known(2.2, 2.5), tree: known(2.4, 2.6)}
    timed = {PLAIN: 1.0}
    assert all(may_win(one, gains, timed) for one in gains)
    timed[short] = 1.2
    assert [one for one in gains if not may_win(one, gains, timed)] == [PLAIN]
    timed[wide] = 2.0
    # The tree drafts fewer tokens at depth 1 than the wide shape, so its rounds may be cheaper.
    assert may_win(tree, gains, timed) and not may_win(LoopSetting((4, 1)), {
        **gains, LoopSetting((4, 1)): known(1.7, 1.8)}, timed)  # fmt: skip
    timed[long] = 1.5
    assert may_win(tree, gains, timed)
    timed[LoopSetting((2, 1, 1))] = 2.4
    gains[LoopSetting((2, 1, 1))] = known(2.3, 2.5)
    assert not may_win(tree, gains, timed) and may_win(long, gains, timed)


@pytest.mark.parametrize(("gain", "tried"), [(1e-6, 2), (1e6, 6)])
def test_only_what_may_win_is_compiled(gain: float, tried: int) -> None:
    pytest.importorskip("torch")
    from otlp.device import Llama

    pair = Llama(tiny("llama", 0)), Llama(tiny("llama", 1))
    bench = Bench(*pair, Sampling(), [np.array([1, 2]), np.array([3, 4])], 8, False, "wall")
    wanted = grid((1, 2), (1, 2), [(2, 2)])
    # One draft token may win at any cost of a round; more tokens win clearly.
    gains = {one: Estimate(*3 * (gain ** max(one.nodes - 1, 0),)) for one in [PLAIN, *wanted]}
    compiled_settings: list[LoopSetting] = []
    costs = measure_costs(bench, wanted, gains, tell=lambda one, *_: compiled_settings.append(one))
    assert list(map(str, compiled_settings[:2])) == ["plain", "block 1 x 1"]
    assert len(compiled_settings) == tried
    assert all(costs.seconds(one) > 0.0 for one in [PLAIN, *wanted])


def of_calls(target: list[float], draft: float) -> RoundCosts:
    """Return costs of calls, without further costs of verification."""
    return RoundCosts(target[0], dict(enumerate(target)), (draft, 0.0, draft, 0.0))


def flatter(rows: np.ndarray) -> np.ndarray:
    roots = np.sqrt(rows)
    return roots / roots.sum(-1, keepdims=True)


def test_predictions_are_text_renewal_over_costs(texts) -> None:
    costs = of_calls([1.0, 1.1, 1.2, 1.3, 1.4], 0.1)
    texts = {**texts, 2.0: [replace(one, drafts=flatter(one.drafts)) for one in texts[None]]}
    wanted = grid((1, 2), (1, 2), [(1, 2)], (None, 2.0))
    found, _ = predict(texts, wanted, lambda gains: costs, first=8)
    assert {one.setting for one in found} == {PLAIN, *wanted}
    for one in found:
        setting, own = one.setting, texts[one.setting.draft_temperature]
        assert one.texts == 8
        if setting.algorithm == "tournament":
            tree = prefix_tree(setting.branching)
            efficiency = Renewal.of(tournament_profile(text, tree, 2) for text in own).efficiency
            assert one.tokens_per_call.mean == pytest.approx(efficiency)
        elif setting != PLAIN:
            profiles = [tournament_profile(text, iid_paths(setting.paths, 2), 2) for text in own]
            efficiency = Renewal.of(one[:, : setting.length + 1] for one in profiles).efficiency
            assert one.tokens_per_call.mean == pytest.approx(efficiency)
            seconds = 1.0 + 0.1 * setting.nodes + 0.1 * setting.length
            assert one.tokens_per_second.mean == pytest.approx(efficiency / seconds)
        else:
            assert one.tokens_per_second.mean == pytest.approx(1.0)
    rates = [one.tokens_per_second.mean for one in found]
    assert rates == sorted(rates, reverse=True)


def test_losers_are_dropped_early_and_the_winner_stays(texts) -> None:
    # A draft call costs thirty target calls: long paths lose clearly.
    costs = of_calls([1.0] * 20, 30.0)
    whole, _ = predict(texts, grid((1, 2), (1, 2, 4)), lambda gains: costs, first=8)
    halved, _ = predict(texts, grid((1, 2), (1, 2, 4)), lambda gains: costs, first=2)
    assert halved[0].setting == whole[0].setting == PLAIN
    assert min(one.texts for one in halved) < 8
    assert {one.setting: one for one in halved}[PLAIN].texts == 8


def test_what_cannot_be_predicted_is_refused(texts) -> None:
    costs = of_calls([1.0, 1.0], 0.0)
    with pytest.raises(InvalidInputError, match="0 settings"):
        predict(texts, [], lambda gains: costs)
    with pytest.raises(InvalidInputError, match="1 texts"):
        predict({None: texts[None][:1]}, grid((1,), (1,)), lambda gains: costs)
    with pytest.raises(InvalidInputError, match=r"at least 13 tokens .*, got 12"):
        predict(texts, grid((1,), (12,)), lambda gains: costs)


def test_a_race_pairs_prompts_and_knows_the_drift() -> None:
    calls = []

    def way(seconds: float):
        def decode(prompt, seed):
            calls.append((seconds, seed))
            return Decoding(10, 5.0, 5, {"target": seconds}, seconds * prompt.size, seconds)

        return decode

    prompts = [np.arange(size) for size in (3, 4, 5)]
    found = race({"plain": way(2.0), "fast": way(1.0)}, "plain", prompts, seed=7)
    fast = found.ways["fast"]
    assert fast.speed_up(found.ways["plain"], "wall").mean == pytest.approx(2.0)
    assert fast.rate("wall").mean == pytest.approx(30 / 12)
    assert fast.rate("processor").mean == pytest.approx(10.0)
    assert fast.block_efficiency.mean == 2.0
    assert fast.shares == {"target": 1.0}
    assert found.drift("wall").mean == pytest.approx(1.0)
    assert {seed for _, seed in calls} == {7, 8, 9}
    with pytest.raises(InvalidInputError, match="'slow'"):
        race({"plain": way(1.0)}, "slow", prompts)


def test_agreement() -> None:
    found = agreement([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)])
    assert found["rank_correlation"] == pytest.approx(1.0)
    assert found["mean_error"] == pytest.approx(0.5)
    assert json.dumps(found)


def test_settings_are_named_by_what_is_drafted() -> None:
    names = {
        "plain": PLAIN,
        "block 1 x 2": LoopSetting((1, 1)),
        "two-slice 3 x 1": LoopSetting((3,)),
        "tournament 1-2, draft T 0.5": LoopSetting((1, 2), 0.5),
    }
    assert {str(one): one for one in names.values()} == names
    assert [one.nodes for one in names.values()] == [0, 2, 3, 3]
    assert names["tournament 1-2, draft T 0.5"].paths == 2
    assert LoopSetting((2, 1, 3)).widths == (2, 2, 6)


def test_target_only_is_paired_with_what_the_loop_runs(pair, texts) -> None:
    """With one token per round, the most likely draft token is accepted."""
    texts = TunedTexts.of(pair[0], Sampling(), [PROMPT] * 8, texts[None], [2.0])
    for drafted in (None, 2.0):
        gain = target_only_gain(LoopSetting((1,), drafted), texts)
        tokens = calls = 0
        for text in texts.by_temperature[drafted]:
            place = 0
            while place < 11:
                hit = text.drafts[place].argmax() == text.tokens[place]
                place, calls = place + 1 + hit, calls + 1
            tokens += place
        own = Renewal.of(
            tournament_profile(text, iid_paths(1, 1), 1) for text in texts.by_temperature[drafted]
        )
        assert gain.mean == pytest.approx(tokens / calls / own.efficiency)
        assert gain.low < gain.mean < gain.high


def test_a_text_is_drafted_anew_by_one_call(pair, texts) -> None:
    for text in texts[None]:
        pair[0].start(PROMPT)
        anew = with_draft(replace(text, drafts=text.targets), pair[0])
        assert anew.drafts == pytest.approx(text.drafts)


def test_what_the_last_round_drafts_beyond_an_end_is_not_counted():
    class Ending(TabularModel):
        ends = (0, 1, 2)

    tables = random_pair(3, 9, np.random.default_rng(4))[1].tables
    # The draft is the target: the first round accepts two tokens, and one of them ends the text.
    way = round_way(Ending(tables), Ending(tables), LoopSetting((1, 1)), Sampling(), 8)
    assert way(np.empty(0, dtype=np.int64), 0)[:3] == (1, 1, 1)
