"""Which setting decodes most tokens a second: costs measured, tokens a call by text renewal.

Nothing is decoded to learn what a setting gives: the target writes texts, and text renewal values
every setting along all of them, so settings are paired and no draw is left to chance.  Settings
that are surely slower than the best so far are dropped after a few texts, and the rest is valued
on twice as many.  What a round costs follows from a few settings that are timed on this device, or
from a cost curve of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from otlp.decode.design import WrittenText, tournament_profile
from otlp.decode.design.text_renewal import renew
from otlp.decode.drafting import Drafting, TopTree, iid_paths, prefix_tree, without_replacement
from otlp.decode.models.model import Model
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, rate_ratio
from otlp.studies.loop_setting import PLAIN, LoopSetting
from otlp.studies.round_costs import RoundCosts
from otlp.studies.trees import Scheme, value


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


def predict(
    texts: Mapping[float | None, Sequence[WrittenText]],
    settings: Iterable[LoopSetting],
    price: Callable[[Mapping[LoopSetting, Estimate]], RoundCosts],
    *,
    first: int = 4,
    keep: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Prediction]:
    """Predict tokens a second by successive halving, the best first.

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
    progress : callable, optional
        Called with a few words before each text of each number of paths.

    Returns
    -------
    list of Prediction
        Those that were valued on all texts first.

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
    for text in chain(*texts.values()):
        text.starts(longest)
    say = progress or (lambda words: None)
    found: dict[LoopSetting, list[tuple[float, float]]] = {one: [] for one in wanted}

    def go_on(alive: Sequence[LoopSetting], some: range) -> None:
        for at in some:
            here = {drafted: own[at] for drafted, own in texts.items()}
            for one, renewed in _valued(here, alive, longest, say):
                found[one].append(renewed)

    done = min(max(first, 2), count)
    go_on(wanted, range(done))
    costs, alive = price({one: _efficiency(found[one]) for one in wanted}), wanted
    while done < count:
        alive = _survivors(found, alive, costs, keep)
        go_on(alive, range(done, min(2 * done, count)))
        done = min(2 * done, count)
    made = [_prediction(one, found[one], costs) for one in wanted]
    return sorted(made, key=lambda one: (-one.texts, -one.tokens_per_second.mean))


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
    same = np.ones(len(tokens)), np.ones(len(tokens))
    return rate_ratio(tokens, calls * seconds, *same)


def _prediction(
    setting: LoopSetting, found: Sequence[tuple[float, float]], costs: RoundCosts
) -> Prediction:
    rate = _efficiency(found, costs.seconds(setting))
    return Prediction(setting, _efficiency(found), rate, len(found))


def other_rules(
    setting: LoopSetting,
    texts: Sequence[WrittenText],
    rng: np.random.Generator,
    begun: Callable[[int], tuple[Model, IntArray]] | None = None,
) -> dict[str, Estimate]:
    """What rules that the loop does not run would give, over what a setting gives on the same text.

    Parameters
    ----------
    setting : LoopSetting
        Not `PLAIN`.
    texts : sequence of WrittenText
        With the draft at the setting's temperature.
    rng : numpy.random.Generator
        For the siblings that rules reject, or choose among.
    begun : callable, optional
        See `gather_statistics`; without it deterministic trees are left out.

    Returns
    -------
    dict of str to Estimate
        Tokens a call over those of the setting, paired by texts: the optimum at each node of its
        shape, greedy multi-path on as many paths of its length as have no more tokens, rejection
        on its shape with siblings drawn without replacement, target-only on the likeliest tree of
        as many tokens.
    """
    length, nodes = setting.length, setting.nodes
    drawn, distinct = prefix_tree(setting.branching), without_replacement(setting.branching)
    draftings: dict[str, Drafting] = {
        "optimal": drawn,
        "greedy-multipath": iid_paths(nodes // length, length),
        "recursive-rejection": distinct,
        "traversal": distinct,
    }
    if begun is not None:
        draftings["target-only"] = TopTree(nodes, length)

    def renewed(rule: str, drafting: Drafting) -> list[FloatArray]:
        found = value(Scheme(rule, drafting, rule, nodes), texts, length, rng, begun)
        return [np.array(part) for part in (found.tokens, found.calls)]

    own = renewed("tournament", drawn)  # on paths the two-slice rule, on one block verification
    return {
        rule: rate_ratio(*renewed(rule, drafting), *own) for rule, drafting in draftings.items()
    }


def agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Rank correlation (Spearman) and mean relative error of predictions (predicted, measured)."""
    from scipy.stats import spearmanr

    predicted, measured = (np.array(part) for part in zip(*pairs, strict=True))
    rank = float(spearmanr(predicted, measured).statistic) if len(pairs) > 2 else float("nan")
    error = float(np.mean(np.abs(predicted / measured - 1.0)))
    return {"rank_correlation": rank, "mean_error": error, "settings": len(pairs)}
