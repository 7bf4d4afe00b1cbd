"""Prediction of tokens per second of settings: measured costs, tokens per call by text renewal.

The target decodes texts once.  Text renewal then computes the tokens per call of every setting on
the same texts without further decoding, so settings are paired and there is no sampling noise of
the draft.  Settings that are significantly slower than the best setting are dropped after a few
texts, and the others are evaluated on twice as many texts.  The cost of a round follows from a few
settings that are timed on this device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otlp.decode.drafting import TopTree, iid_paths, prefix_tree
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, rate_ratio, ratio
from otlp_lab.design import Renewal, WrittenText, top_tree_renewal, tournament_profile
from otlp_lab.design.text_renewal import renew
from otlp_lab.design.written_texts import with_draft
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting
from otlp_lab.tuning.round_costs import RoundCosts


@dataclass(frozen=True)
class Prediction:
    """Predicted speed of a setting.

    Attributes
    ----------
    setting : LoopSetting
    tokens_per_call, tokens_per_second : Estimate
        Estimates over the evaluated texts; the intervals do not include errors of the costs.
    texts : int
        Number of evaluated texts; small for settings that were dropped early.
    """

    setting: LoopSetting
    tokens_per_call: Estimate
    tokens_per_second: Estimate
    texts: int


@dataclass(frozen=True)
class TunedTexts:
    """Texts of a target with the draft's distributions at several temperatures.

    Attributes
    ----------
    draft : Model
    sampling : Sampling
        Sampling of the target.
    prompts : sequence of ndarray of int64
        Prompt of each text.
    by_temperature : dict of float to list of WrittenText
        The same texts for each draft temperature; None is the target's temperature.
    """

    draft: Model
    sampling: Sampling
    prompts: Sequence[IntArray]
    by_temperature: dict[float | None, list[WrittenText]]

    @classmethod
    def of(
        cls,
        draft: Model,
        sampling: Sampling,
        prompts: Sequence[IntArray],
        texts: list[WrittenText],
        temperatures: Iterable[float | None],
    ) -> TunedTexts:
        """Compute the draft's distributions on texts at additional temperatures."""
        made = cls(draft, sampling, prompts, {None: texts})
        for one in temperatures:
            starts = (made.begun(one, at)[0] for at in range(len(texts)))
            made.by_temperature[one] = list(map(with_draft, texts, starts))
        return made

    def begun(self, temperature: float | None, text: int) -> tuple[Model, IntArray]:
        """Start the draft at the prompt of a text; return the draft and the text's tokens."""
        self.draft.sampling = self.sampling.at(temperature)
        self.draft.start(self.prompts[text])
        return self.draft, self.by_temperature[None][text].tokens


def predict(
    texts: Mapping[float | None, Sequence[WrittenText]],
    settings: Iterable[LoopSetting],
    price: Callable[[Mapping[LoopSetting, Estimate]], RoundCosts],
    *,
    first: int = 4,
    keep: int = 1,
    progress: Callable[[str], None] = lambda words: None,
) -> tuple[list[Prediction], RoundCosts]:
    """Predict the tokens per second of settings by successive halving.

    Parameters
    ----------
    texts : mapping of float to sequence of WrittenText
        The same texts for each draft temperature; at least two, longer than the longest path.
    settings : iterable of LoopSetting
        Settings.  `PLAIN` is always added, and never dropped.
    price : callable
        Maps the tokens per call of all settings on the first texts to the costs of rounds, so that
        settings that cannot be the fastest need not be timed.
    first : int
        Number of texts on which all settings are evaluated.
    keep : int
        Number of best settings that are evaluated on all texts in any case.
    progress : callable
        Called with a label before each text of each number of paths.

    Returns
    -------
    found : list of Prediction
        Sorted by the number of evaluated texts, then by tokens per second, in descending order.
    costs : RoundCosts

    Raises
    ------
    InvalidInputError
        If there are fewer than two texts, no settings, or a path is as long as a text.

    Notes
    -----
    A setting is dropped if the 95% interval of its ratio to the best setting lies below one.  The
    interval is paired by texts.
    """
    wanted = list(dict.fromkeys([PLAIN, *settings]))
    count = min(map(len, texts.values()))
    if len(wanted) < 2 or count < 2:
        raise InvalidInputError(
            f"predict needs at least two texts and one setting, got {count} texts and "
            f"{len(wanted) - 1} settings"
        )
    longest = max(setting.length for setting in wanted)
    found: dict[LoopSetting, list[tuple[float, float]]] = {one: [] for one in wanted}

    def evaluate(settings: Sequence[LoopSetting], numbers: range) -> None:
        for at in numbers:
            here = {drafted: own[at] for drafted, own in texts.items()}
            for one, renewed in _evaluated(here, settings, longest, progress):
                found[one].append(renewed)

    done = min(max(first, 2), count)
    evaluate(wanted, range(done))
    costs, alive = price({one: _efficiency(found[one]) for one in wanted}), wanted
    while done < count:
        alive = _survivors(found, alive, costs, keep)
        evaluate(alive, range(done, min(2 * done, count)))
        done = min(2 * done, count)
    made = [
        Prediction(one, _efficiency(seen), _efficiency(seen, costs.seconds(one)), len(seen))
        for one, seen in found.items()
    ]
    return sorted(made, key=lambda one: (-one.texts, -one.tokens_per_second.mean)), costs


def _evaluated(
    texts: Mapping[float | None, WrittenText],
    settings: Sequence[LoopSetting],
    longest: int,
    say: Callable[[str], None],
) -> Iterator[tuple[LoopSetting, tuple[float, float]]]:
    """Yield tokens and calls along one text, over the same positions for all settings."""
    profiles: dict[tuple[float | None, int], FloatArray] = {}
    for one in settings:
        if one == PLAIN:
            places = float(texts[None].starts(longest))
            yield one, (places, places)
            continue
        text = texts[one.draft_temperature]
        if one.algorithm == "tournament":
            say(str(one))
            profile = tournament_profile(text, prefix_tree(one.branching), longest)
        else:
            key = one.draft_temperature, one.paths
            if key not in profiles:
                say(f"K = {one.paths}")
                profiles[key] = tournament_profile(text, iid_paths(one.paths, longest), longest)
            profile = profiles[key]
        yield one, renew(profile[:, : one.length + 1])


def _survivors(
    found: Mapping[LoopSetting, list[tuple[float, float]]],
    alive: Sequence[LoopSetting],
    costs: RoundCosts,
    keep: int,
) -> list[LoopSetting]:
    rows = {}
    for one in alive:
        tokens, calls = (np.array(part) for part in zip(*found[one], strict=True))
        rows[one] = tokens, calls * costs.seconds(one)
    best = sorted(alive, key=lambda one: -rows[one][0].sum() / rows[one][1].sum())
    return [
        one
        for one in alive
        if one in (PLAIN, *best[: keep + 1])
        or not rate_ratio(*rows[one], *rows[best[0]]).high < 1.0
    ]


def _efficiency(found: Sequence[tuple[float, float]], seconds: float = 1.0) -> Estimate:
    """Estimate tokens per call, or per second for `seconds` per round."""
    tokens, calls = (np.array(part) for part in zip(*found, strict=True))
    return ratio(tokens, calls * seconds)


def target_only_gain(setting: LoopSetting, texts: TunedTexts) -> Estimate:
    """Estimate the ratio of tokens per call of target-only verification to a setting, paired.

    Target-only verification uses the most probable tree with the same number of tokens and the
    same maximum path length.  The device loop does not support this tree.

    Parameters
    ----------
    setting : LoopSetting
        Any setting but `PLAIN`.
    texts : TunedTexts
    """
    length, drafted = setting.length, setting.draft_temperature
    along, shape = texts.by_temperature[drafted], prefix_tree(setting.branching)
    # The tournament equals the two-slice rule for paths and block verification for one path.
    own = Renewal.of(tournament_profile(text, shape, length) for text in along)
    tree = TopTree(setting.nodes, length)
    top = top_tree_renewal(lambda text: texts.begun(drafted, text), along, tree, length)
    tokens_and_calls = (np.array(part) for one in (top, own) for part in (one.tokens, one.calls))
    return rate_ratio(*tokens_and_calls)


def agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return rank correlation (Spearman) and mean relative error of (predicted, measured) pairs."""
    from scipy.stats import spearmanr

    predicted, measured = (np.array(part) for part in zip(*pairs, strict=True))
    rank = float(spearmanr(predicted, measured).statistic) if len(pairs) > 2 else float("nan")
    error = float(np.mean(np.abs(predicted / measured - 1.0)))
    return {"rank_correlation": rank, "mean_error": error, "settings": len(pairs)}
