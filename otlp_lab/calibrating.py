"""Fit what the noise tells: races of a draft and its target, and the chances of candidates."""

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
"""Of the scale."""


@dataclass(frozen=True, eq=False)
class Races:
    """What the best candidates of races were, and which of them the target drew.

    Attributes
    ----------
    scores : ndarray, shape (m, R)
        T (log q + G) of the best candidates, best first, the best's being 0; minus infinity where
        there are fewer.
    winners : ndarray of int64, shape (m,)
        Rank of the target's draw among them, from 0; R if it is none of them.
    """

    scores: FloatArray
    winners: IntArray

    @property
    def ranks(self) -> FloatArray:
        """How often the target drew each rank, shape (R,)."""
        counts = np.bincount(self.winners, minlength=self.scores.shape[1] + 1)
        return counts[:-1] / self.winners.size

    def loss(self, scale: float) -> float:
        """Minus the mean log likelihood of the draws that are candidates."""
        found = self.winners < self.scores.shape[1]
        scaled = self.scores[found] / scale
        drawn = np.take_along_axis(scaled, self.winners[found, None], axis=1)[:, 0]
        return float(np.mean(np.log(np.exp(scaled).sum(axis=1)) - drawn))

    def calibration(self, target: str = "", draft: str = "") -> Calibration:
        """The likeliest calibration, under the names of the models.

        Raises
        ------
        InvalidInputError
            If the target never drew a candidate.
        """
        from scipy.optimize import minimize_scalar

        if not self.ranks.sum():
            raise InvalidInputError("the target never drew a candidate of the draft's")
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
    """Let draft and target race on rows, with noise of their own for each.

    Parameters
    ----------
    rows : iterable of (p, q)
        The target's and the draft's distributions at one temperature, each of shape (V,).
    temperature : float
        That one.
    seed : int or sequence of int
    races : int
        On each row.

    Raises
    ------
    InvalidInputError
        If there is no row, or a number is out of its range.

    Notes
    -----
    O(V) a race.

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
        raise InvalidInputError("there is no row to race on: give at least one")
    return Races(np.array(scores), np.array(winners))


def together(found: Iterable[Races]) -> Races:
    """All races of several, such as of several temperatures."""
    every = list(found)
    return Races(
        np.concatenate([one.scores for one in every]),
        np.concatenate([one.winners for one in every]),
    )
