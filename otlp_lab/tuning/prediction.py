"""Which setting decodes most tokens a second: costs measured, tokens a call by text renewal.

Nothing is decoded to learn what a setting gives: the target writes texts, and text renewal values
every setting along all of them, so settings are paired and no draw is left to chance.  Settings
that are surely slower than the best so far are dropped after a few texts, and the rest is valued
on twice as many.  What a round costs follows from a few settings that are timed on this device.
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
from otlp_lab.design.written_texts import drafted_anew
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting
from otlp_lab.tuning.round_costs import RoundCosts


@dataclass(frozen=True)
class Prediction:
    """What a setting is predicted to give.

    Attributes
    ----------
    setting : LoopSetting
    tokens_per_call, tokens_per_second : Estimate
        Over the texts that it was valued on; the costs are taken as they are.
    texts : int
        How many: few for settings that were dropped early.
    """

    setting: LoopSetting
    tokens_per_call: Estimate
    tokens_per_second: Estimate
    texts: int


@dataclass(frozen=True)
class TunedTexts:
    """Texts of a target, and their draft at some temperatures.

    Attributes
    ----------
    draft : Model
    sampling : Sampling
        Of the target.
    prompts : sequence of ndarray of int64
        What each text goes on from.
    by_temperature : dict of float to list of WrittenText
        By the draft's temperature the same texts; None is the target's.
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
        """What the draft says along texts, at its own temperature and others."""
        made = cls(draft, sampling, prompts, {None: texts})
        for one in temperatures:
            starts = (made.begun(one, at)[0] for at in range(len(texts)))
            made.by_temperature[one] = list(map(drafted_anew, texts, starts))
        return made

    def begun(self, temperature: float | None, text: int) -> tuple[Model, IntArray]:
        """The draft before a text, by its number, and the text's tokens."""
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
    """Predict tokens a second by successive halving, the best first; and by which costs.

    Parameters
    ----------
    texts : mapping of float to sequence of WrittenText
        By the draft's temperature, the same texts; at least two, longer than the longest path.
    settings : iterable of LoopSetting
        `PLAIN` is always among them, and never dropped.
    price : callable
        From the tokens a call of all settings on the first texts to what rounds cost: what cannot
        win needs no measuring.
    first : int
        Texts that all settings are valued on.
    keep : int
        So many of the best are valued on all texts, even if they surely lose to the best.
    progress : callable
        Called with a few words before each text of each number of paths.

    Returns
    -------
    found : list of Prediction
        Those that were valued on all texts first.
    costs : RoundCosts

    Raises
    ------
    InvalidInputError
        If there are fewer than two texts, no settings, or a path is as long as a text.

    Notes
    -----
    A setting is dropped when the 95% interval of its ratio to the best lies below one; the interval
    is paired by texts.
    """
    wanted = list(dict.fromkeys([PLAIN, *settings]))
    count = min(map(len, texts.values()))
    if len(wanted) < 2 or count < 2:
        raise InvalidInputError(
            f"there are {count} texts and {len(wanted) - 1} settings: give at least two texts "
            "and one setting"
        )
    longest = max(setting.length for setting in wanted)
    found: dict[LoopSetting, list[tuple[float, float]]] = {one: [] for one in wanted}

    def go_on(alive: Sequence[LoopSetting], some: range) -> None:
        for at in some:
            here = {drafted: own[at] for drafted, own in texts.items()}
            for one, renewed in _valued(here, alive, longest, progress):
                found[one].append(renewed)

    done = min(max(first, 2), count)
    go_on(wanted, range(done))
    costs, alive = price({one: _efficiency(found[one]) for one in wanted}), wanted
    while done < count:
        alive = _survivors(found, alive, costs, keep)
        go_on(alive, range(done, min(2 * done, count)))
        done = min(2 * done, count)
    made = [
        Prediction(one, _efficiency(seen), _efficiency(seen, costs.seconds(one)), len(seen))
        for one, seen in found.items()
    ]
    return sorted(made, key=lambda one: (-one.texts, -one.tokens_per_second.mean)), costs


def _valued(
    texts: Mapping[float | None, WrittenText],
    settings: Sequence[LoopSetting],
    longest: int,
    say: Callable[[str], None],
) -> Iterator[tuple[LoopSetting, tuple[float, float]]]:
    """Tokens and calls along one text, over the same places for all settings."""
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
    """Tokens a call, or a second if a round takes so many."""
    tokens, calls = (np.array(part) for part in zip(*found, strict=True))
    return ratio(tokens, calls * seconds)


def target_only_gain(setting: LoopSetting, texts: TunedTexts) -> Estimate:
    """Tokens a call of target-only verification over those of a setting, paired by texts.

    On the likeliest tree of as many tokens and no longer paths, which the loop does not run.

    Parameters
    ----------
    setting : LoopSetting
        Not `PLAIN`.
    texts : TunedTexts
    """
    length, drafted = setting.length, setting.draft_temperature
    along, shape = texts.by_temperature[drafted], prefix_tree(setting.branching)
    # of paths the tournament is the two-slice rule, of one path block verification
    own = Renewal.of(tournament_profile(text, shape, length) for text in along)
    tree = TopTree(setting.nodes, length)
    top = top_tree_renewal(lambda text: texts.begun(drafted, text), along, tree, length)
    tokens_and_calls = (np.array(part) for one in (top, own) for part in (one.tokens, one.calls))
    return rate_ratio(*tokens_and_calls)


def agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Rank correlation (Spearman) and mean relative error of predictions (predicted, measured)."""
    from scipy.stats import spearmanr

    predicted, measured = (np.array(part) for part in zip(*pairs, strict=True))
    rank = float(spearmanr(predicted, measured).statistic) if len(pairs) > 2 else float("nan")
    error = float(np.mean(np.abs(predicted / measured - 1.0)))
    return {"rank_correlation": rank, "mean_error": error, "settings": len(pairs)}
