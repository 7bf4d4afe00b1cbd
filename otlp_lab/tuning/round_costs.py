"""Cost model of a round: target call, drafting and verification.

The model is fitted to a few timed settings and predicts the costs of all settings.
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
"""Assumed relative error of the time of one prompt when settings are ruled out."""


@dataclass(frozen=True)
class RoundCosts:
    """Seconds of a round by its setting.

    Parameters
    ----------
    plain : float
        Seconds of a token without a draft.
    target : mapping of int to float
        Seconds of a target call by its number of drafted tokens, with linear interpolation, and
        extrapolation from the last two entries.
    draft : tuple of four floats
        a, b, c, d: drafting takes a + b k + c (L - 1) + d n for k tokens drawn at the root and n
        drafted tokens above the leaves.
    verification : tuple of three floats
        e, f, g: verification and the update of the caches take e + f N for N drafted tokens, plus
        g N for the tournament.
    """

    plain: float
    target: Mapping[int, float]
    draft: tuple[float, float, float, float]
    verification: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def seconds(self, setting: LoopSetting) -> float:
        """Return the seconds of a round."""
        if setting == PLAIN:
            return self.plain
        return (
            self.call(setting.nodes)
            + float(np.dot(self.draft, _draft_factors(setting)))
            + float(np.dot(self.verification, _verification_factors(setting)))
        )

    def call(self, nodes: int) -> float:
        """Return the seconds of a target call on `nodes` drafted tokens."""
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
        """Fit the model to seconds per round of draft, target, verification and rest."""
        settings = list(measured)

        def seconds(*parts: str) -> FloatArray:
            return np.array([sum(measured[one][part] for part in parts) for one in settings])

        factors = _draft_factors, _verification_factors
        draft, rest = (np.array([row(one) for one in settings]) for row in factors)
        known, places = np.unique([one.nodes for one in settings], return_inverse=True)
        means = np.bincount(places, seconds("target")) / np.bincount(places)
        # Costs must not decrease with the number of tokens: a measured decrease is noise.
        calls = np.maximum.accumulate(means)
        a, b, c, d = (float(x) for x in nnls(draft, seconds("draft"))[0])
        e, f, g = (float(x) for x in nnls(rest, seconds("verification", "rest"))[0])
        target = dict(zip(known.tolist(), calls.tolist(), strict=True))
        return cls(plain, target, (a, b, c, d), (e, f, g))


def _draft_factors(setting: LoopSetting) -> tuple[int, ...]:
    """Return the factors of the coefficients `RoundCosts.draft`."""
    widths = setting.widths
    return 1, widths[0], len(widths) - 1, sum(widths[:-1])


def _verification_factors(setting: LoopSetting) -> tuple[int, ...]:
    """Return the factors of the coefficients `RoundCosts.verification`."""
    return 1, setting.nodes, setting.nodes * (setting.algorithm == "tournament")


def corners(settings: Sequence[LoopSetting]) -> list[LoopSetting]:
    """Return a few settings whose costs determine the costs of all settings.

    These are the smallest, middle and largest K and L, and the smallest and the largest tree,
    sorted by the number of drafted tokens.
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
    """Return whether a setting might still be the fastest, given the times of some settings.

    Parameters
    ----------
    setting : LoopSetting
    gains : mapping of LoopSetting to Estimate
        Tokens per call.
    known : mapping of LoopSetting to float
        Seconds per round of some settings, including `PLAIN`.

    Notes
    -----
    The lower bound on the cost is that of timed settings with at most as many tokens at each depth,
    reduced by `NOISE`.  The number of tokens per call is the upper end of its interval.
    """
    least = max(
        seconds
        for one, seconds in known.items()
        if one.length <= setting.length
        and all(x <= y for x, y in zip(one.branching, setting.branching, strict=False))
    )
    best = max(gains[one].mean / seconds for one, seconds in known.items() if one in gains)
    return gains[setting].high >= best * least * (1.0 - NOISE)
