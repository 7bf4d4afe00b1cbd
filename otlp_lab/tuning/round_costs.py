"""What a round costs by its setting: a target call by its tokens, drafting, verification.

Few settings are timed, and the costs of all follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from otlp.distribution import FloatArray
from otlp.studies.estimate import Estimate
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting, grid

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
