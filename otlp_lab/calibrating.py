"""Calibration of shared noise: Gumbel races of draft and target, and candidate probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from otlp.checks import whole_number
from otlp.decode.models.calibration import MOST_RANKS, Calibration
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed, check_seed, noise_row
from otlp.numerics.top_tokens import top_tokens

NARROWEST, WIDEST = 0.01, 100.0
"""Bounds of the fitted scale."""


@dataclass(frozen=True, eq=False)
class Races:
    """Best candidates of races and the target's draws.

    Attributes
    ----------
    scores : ndarray, shape (m, R)
        Scores T (log q + G) of the best candidates in descending order, shifted so that the best
        score is 0; minus infinity if there are fewer than R candidates.
    winners : ndarray of int64, shape (m,)
        Rank of the target's draw among the candidates, from 0; R if it is not a candidate.
    """

    scores: FloatArray
    winners: IntArray

    @property
    def ranks(self) -> FloatArray:
        """Share of races in which the target drew each rank, shape (R,)."""
        counts = np.bincount(self.winners, minlength=self.scores.shape[1] + 1)
        return counts[:-1] / self.winners.size

    def loss(self, scale: float) -> float:
        """Return minus the mean log likelihood of the draws that are candidates."""
        found = self.winners < self.scores.shape[1]
        scaled = self.scores[found] / scale
        drawn = np.take_along_axis(scaled, self.winners[found, None], axis=1)[:, 0]
        return float(np.mean(np.log(np.exp(scaled).sum(axis=1)) - drawn))

    def calibration(self, target: str = "", draft: str = "") -> Calibration:
        """Return the maximum-likelihood calibration, with the names of the models.

        Raises
        ------
        InvalidInputError
            If the target never drew a candidate.
        """
        from scipy.optimize import minimize_scalar

        if not self.ranks.sum():
            raise InvalidInputError("the target never drew one of the draft's candidates")
        bounds = np.log([NARROWEST, WIDEST])
        best = minimize_scalar(lambda x: self.loss(np.exp(x)), bounds=bounds, method="bounded")
        unknown = float(np.mean(self.winners == self.scores.shape[1]))
        return Calibration(float(np.exp(best.x)), unknown, target, draft)


def race(
    rows: Iterable[tuple[FloatArray, FloatArray]],
    temperature: float,
    seed: Seed,
    races: int = 1,
) -> Races:
    """Run Gumbel races of draft and target with shared noise, independent for each race.

    Parameters
    ----------
    rows : iterable of (p, q)
        Distributions of target and draft at the same temperature, each of shape (V,).
    temperature : float
        Temperature of `rows`.
    seed : int or sequence of int
    races : int
        Number of races per row.

    Raises
    ------
    InvalidInputError
        If `rows` is empty, or a number is out of range.

    Notes
    -----
    O(V) per race.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.calibrating import race
    >>> p, q = np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.25, 0.25])
    >>> found = race([(p, q)], 1.0, seed=0, races=500)
    >>> found.ranks[:3].round(2).tolist()
    [0.85, 0.15, 0.0]
    >>> found.calibration().scale < 0.5
    True
    """
    whole_number(races, "races")
    seed, scores, winners = check_seed(seed), [], []
    for number, (p, q) in enumerate(rows):
        for again in range(races):
            noise = noise_row((*seed, number), again, p.size)
            ratios = q / noise
            best = top_tokens(ratios, MOST_RANKS)
            best = best[ratios[best] > 0.0]
            with np.errstate(divide="ignore"):
                row = np.full(MOST_RANKS, -np.inf)
                row[: best.size] = temperature * np.log(ratios[best] / ratios[best[0]])
            at = np.flatnonzero(best == np.argmax(p / noise))
            scores.append(row)
            winners.append(int(at[0]) if at.size else MOST_RANKS)
    if not winners:
        raise InvalidInputError("rows must not be empty: give at least one")
    return Races(np.array(scores), np.array(winners))


def concatenate(parts: Iterable[Races]) -> Races:
    """Concatenate races, such as those of several temperatures."""
    races = list(parts)
    return Races(
        np.concatenate([one.scores for one in races]),
        np.concatenate([one.winners for one in races]),
    )
