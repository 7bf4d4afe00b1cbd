"""Which setting decodes most tokens a second: costs measured, tokens a call by text renewal.

Nothing is decoded to learn what a setting gives: the target writes texts, and text renewal values
every setting along all of them, so settings are paired and no draw is left to chance.  Settings
that are surely slower than the best so far are dropped after a few texts, and the rest is valued
on twice as many.  What a round costs follows from a few settings that are timed on this device, or
from a cost curve of another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from otlp.decode.design import CostCurve, WrittenText, tournament_profile
from otlp.decode.design.text_renewal import renew
from otlp.decode.drafting import Drafting, TopTree, iid_paths, prefix_tree, without_replacement
from otlp.decode.models.model import Model
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, rate_ratio
from otlp.studies.trees import Scheme, value


class LoopSetting(NamedTuple):
    """What is drafted: a prefix tree, K paths among them, and the draft's temperature.

    Attributes
    ----------
    branching : tuple of int
        Children of each token by depth: K, 1, ..., 1 for K paths; nothing is drafted by default.
    draft_temperature : float, optional
        By default that of the target.
    """

    branching: tuple[int, ...] = ()
    draft_temperature: float | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Drafted tokens of each depth."""
        return tuple(accumulate(self.branching, mul))

    @property
    def nodes(self) -> int:
        """Drafted tokens a round."""
        return sum(self.widths)

    @property
    def paths(self) -> int:
        """Number K of paths; 0 without a draft."""
        return self.widths[-1] if self.branching else 0

    @property
    def length(self) -> int:
        """Their length L; 0 without a draft."""
        return len(self.branching)

    @property
    def algorithm(self) -> str:
        """The verification that the loop runs."""
        if max(self.branching[1:], default=1) > 1:
            return "tournament"
        return ("autoregressive", "block")[self.paths] if self.paths < 2 else "two-slice"

    @property
    def shape(self) -> str:
        """K x L, or the branching of a tree."""
        if self.algorithm == "tournament":
            return "-".join(map(str, self.branching))
        return f"{self.paths} x {self.length}" if self.branching else "-"

    def __str__(self) -> str:
        """Name it in a few words."""
        if not self.branching:
            return "plain"
        drafted = self.draft_temperature
        at = "" if drafted is None else f", draft T {drafted:g}"
        return f"{self.algorithm} {self.shape}{at}"


PLAIN = LoopSetting()

NOISE = 0.15
"""Relative error of the time of one prompt, by which no setting is ruled out."""


@dataclass(frozen=True)
class RoundCosts:
    """Seconds of a round by its setting.

    Parameters
    ----------
    plain : float
        A token without a draft.
    target : mapping of int to float
        A target call by its drafted tokens; between them it is interpolated, beyond them it goes on
        as between the last two.
    draft : tuple of four floats
        a, b, c, d: drafting takes a + b k + c (L - 1) + d n, with k tokens drawn at the root and n
        above the leaves.
    verification : tuple of three floats
        e, f, g: verification, and moving what is accepted, takes e + f N for N drafted tokens, and
        g N more for the tournament.
    """

    plain: float
    target: Mapping[int, float]
    draft: tuple[float, float, float, float]
    verification: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def seconds(self, setting: LoopSetting) -> float:
        """Seconds of a round."""
        if setting == PLAIN:
            return self.plain
        return (
            self.call(setting.nodes)
            + float(np.dot(self.draft, _drafted(setting)))
            + float(np.dot(self.verification, _verified(setting)))
        )

    def call(self, nodes: int) -> float:
        """Seconds of a target call on so many drafted tokens."""
        known = np.array(sorted(self.target))
        costs = np.array([self.target[at] for at in known])
        if nodes > known[-1] and known.size > 1:
            slope = (costs[-1] - costs[-2]) / (known[-1] - known[-2])
            return float(costs[-1] + max(slope, 0.0) * (nodes - known[-1]))
        return float(np.interp(nodes, known, costs))

    @classmethod
    def of_curve(cls, curve: CostCurve) -> RoundCosts:
        """Costs of another device, where verification costs nothing beside the calls."""
        calls = dict(enumerate(curve.target_seconds))
        draft = (curve.draft_seconds, 0.0, curve.draft_seconds, 0.0)
        return cls(curve.target_seconds[0], calls, draft)

    @classmethod
    def fitted(
        cls, plain: float, measured: Mapping[LoopSetting, Mapping[str, float]]
    ) -> RoundCosts:
        """Fit what some settings took: seconds of draft, target, verification and rest a round."""
        settings = list(measured)

        def seconds(*parts: str) -> FloatArray:
            return np.array([sum(measured[one][part] for part in parts) for one in settings])

        draft, rest = (np.array([row(one) for one in settings]) for row in (_drafted, _verified))
        by_nodes: dict[int, list[float]] = {}
        for setting, cost in zip(settings, seconds("target"), strict=True):
            by_nodes.setdefault(setting.nodes, []).append(float(cost))
        known = sorted(by_nodes)
        # more tokens never cost less: what says otherwise is noise
        calls = np.maximum.accumulate([np.mean(by_nodes[at]) for at in known])
        a, b, c, d = (float(x) for x in nnls(draft, seconds("draft"))[0])
        e, f, g = (float(x) for x in nnls(rest, seconds("verification", "rest"))[0])
        target = dict(zip(known, map(float, calls), strict=True))
        return cls(plain, target, (a, b, c, d), (e, f, g))


def _drafted(setting: LoopSetting) -> tuple[int, ...]:
    """What `RoundCosts.draft` is multiplied with."""
    widths = setting.widths
    return 1, widths[0], len(widths) - 1, sum(widths[:-1])


def _verified(setting: LoopSetting) -> tuple[int, ...]:
    """What `RoundCosts.verification` is multiplied with."""
    return 1, setting.nodes, setting.nodes * (setting.algorithm == "tournament")


def read_costs(path: str | os.PathLike[str]) -> CostCurve:
    """Read a cost curve from a JSON file.

    Parameters
    ----------
    path : str or path
        Of an object with ``target_seconds``, a list with the seconds of a target call on 0, 1, ...
        drafted tokens, and ``draft_seconds``, of a draft call.

    Raises
    ------
    InvalidInputError
        If it cannot be read, is something else, or has a hole or an entry that is not positive.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"cannot read {path!s:.200}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path!s:.200} is no JSON file ({error!s:.100})") from error
    wanted = {"target_seconds", "draft_seconds"}
    if not isinstance(found, dict) or not {"target_seconds"} <= set(found) <= wanted:
        raise InvalidInputError(
            f"{path!s:.200} is no cost curve: write an object with target_seconds, a list with the "
            "seconds of a target call on 0, 1, ... drafted tokens, and draft_seconds, a number"
        )
    return CostCurve(**found)


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
    models: Callable[[int], Model] | None = None,
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
    models : callable, optional
        From the number of a text to the draft at its beginning; without it deterministic trees are
        left out.

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
    if models is not None:
        draftings["target-only"] = TopTree(nodes, length)

    def renewed(rule: str, drafting: Drafting) -> list[FloatArray]:
        found = value(Scheme(rule, drafting, rule, nodes), texts, length, rng, models or _none)
        return [np.array(part) for part in (found.tokens, found.calls)]

    own = renewed("tournament", drawn)  # on paths the two-slice rule, on one block verification
    return {
        rule: rate_ratio(*renewed(rule, drafting), *own) for rule, drafting in draftings.items()
    }


def _none(text: int) -> Model:
    raise AssertionError(f"text {text} was asked for a model")


def grid(
    paths: Iterable[int],
    lengths: Iterable[int],
    trees: Iterable[tuple[int, ...]] = (),
    draft_temperatures: Iterable[float | None] = (None,),
) -> list[LoopSetting]:
    """All settings of K and L and all trees, at each temperature of the draft."""
    shapes = [(k, *[1] * (length - 1)) for k in paths for length in lengths] + list(trees)
    return [LoopSetting(one, drafted) for drafted in draft_temperatures for one in shapes]


def corners(settings: Sequence[LoopSetting]) -> list[LoopSetting]:
    """Few settings from whose costs those of all follow.

    Least, middle and most of K and of L, the smallest tree and the largest; the fewest tokens
    first.
    """
    shapes = dict.fromkeys(one._replace(draft_temperature=None) for one in settings)
    trees = sorted((one for one in shapes if one.algorithm == "tournament"), key=lambda x: x.nodes)
    ends = []
    for part in ("paths", "length"):
        values = sorted({getattr(one, part) for one in shapes if one not in (PLAIN, *trees)})
        ends.append({values[at] for at in (0, len(values) // 2, -1)} if values else set())
    found = [*grid(*map(sorted, ends)), *dict.fromkeys(trees[:1] + trees[-1:])]
    return sorted(found, key=lambda one: one.nodes)


def may_win(
    setting: LoopSetting, gains: Mapping[LoopSetting, Estimate], known: Mapping[LoopSetting, float]
) -> bool:
    """Whether a setting might still be the fastest, after the rounds of some were timed.

    Parameters
    ----------
    setting : LoopSetting
    gains : mapping of LoopSetting to Estimate
        Tokens a call.
    known : mapping of LoopSetting to float
        Seconds of a round of some settings, `PLAIN` among them.

    Notes
    -----
    A round costs no less than one that drafts less at each depth, but for `NOISE`; tokens a call
    are taken at the upper end of their interval.
    """
    least = max(
        seconds
        for one, seconds in known.items()
        if one.length <= setting.length
        and all(x <= y for x, y in zip(one.branching, setting.branching, strict=False))
    )
    best = max(gains[one].mean / seconds for one, seconds in known.items() if one in gains)
    return gains[setting].high >= best * least * (1.0 - NOISE)


def agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Rank correlation (Spearman) and mean relative error of predictions (predicted, measured)."""
    from scipy.stats import spearmanr

    predicted, measured = (np.array(part) for part in zip(*pairs, strict=True))
    rank = float(spearmanr(predicted, measured).statistic) if len(pairs) > 2 else float("nan")
    error = float(np.mean(np.abs(predicted / measured - 1.0)))
    return {"rank_correlation": rank, "mean_error": error, "settings": len(pairs)}
