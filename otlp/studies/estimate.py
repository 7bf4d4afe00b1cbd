"""Means with 95% intervals; prompts or texts, not tokens, are the independent units.

Ratios of sums over the units use the delta method and Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from otlp.distribution import FloatArray, IntArray, sum_by


@dataclass(frozen=True)
class Estimate:
    """Mean and ends of its 95% confidence interval; the ends are NaN for a single unit."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the mean and half the width of the interval, with two digits."""
        return self.show(2)

    def show(self, digits: int) -> str:
        """Return the mean and half the width of the interval with `digits` digits."""
        half = (self.high - self.low) / 2.0
        return f"{self.mean:.{digits}f}" + (f" ±{half:.{digits}f}" if np.isfinite(half) else "")

    def shifted(self, by: float) -> Estimate:
        """Return the estimate shifted by a constant."""
        return Estimate(self.mean + by, self.low + by, self.high + by)

    def minus(self, other: Estimate) -> Estimate:
        """Estimate the difference of two means as if they were independent.

        The half-width is the root of the sum of squares of both half-widths.  The interval is too
        wide if both means are over the same rows and are positively correlated.
        """
        mean = self.mean - other.mean
        half = float(np.hypot(self.high - self.mean, other.high - other.mean))
        return Estimate(mean, mean - half, mean + half)

    @classmethod
    def of(cls, record: list[float | None]) -> Estimate:
        """Return the estimate with this `record`; None becomes NaN."""
        return cls(*(float("nan") if value is None else float(value) for value in record))

    def record(self) -> list[float | None]:
        """Return mean and ends as JSON values; None for a value that is not finite."""
        values = (self.mean, self.low, self.high)
        return [value if np.isfinite(value) else None for value in values]


def estimate(mean: float, influence: FloatArray) -> Estimate:
    """Return a mean with its interval, from the influence of each unit.

    Parameters
    ----------
    mean : float
    influence : ndarray, shape (units,)
        Change of the mean due to each unit, to first order; sums to zero.
    """
    n = influence.size
    if n < 2 or not np.isfinite(mean):
        return Estimate(float(mean), float("nan"), float("nan"))
    error = np.sqrt(n / (n - 1) * np.sum(influence**2))
    half = float(scipy.special.stdtrit(n - 1, 0.975) * error)
    return Estimate(float(mean), float(mean - half), float(mean + half))


def mean_over_units(values: FloatArray, units: IntArray) -> tuple[Estimate, int]:
    """Estimate the mean of values that belong to units, such as the rows of passages.

    Parameters
    ----------
    values : ndarray, shape (rows,)
        Values; rows with NaN are skipped.
    units : ndarray of int, shape (rows,)
        Unit of each row.

    Returns
    -------
    mean : Estimate
    rows : int
        Number of rows with a value.
    """
    applied = ~np.isnan(values)
    valid = values[applied]
    mean = float(valid.mean()) if valid.size else float("nan")
    places = np.unique(units[applied], return_inverse=True)[1]
    influence = sum_by(places, (valid - mean) / max(valid.size, 1), 0)
    return estimate(mean, influence), valid.size


def ratio(tops: npt.NDArray[Any], bottoms: npt.NDArray[Any]) -> Estimate:
    """Estimate sum(tops) / sum(bottoms); both have one value per unit, shape (units,)."""
    mean = float(tops.sum() / bottoms.sum())
    with np.errstate(invalid="ignore"):
        return estimate(mean, (tops - mean * bottoms) / bottoms.sum())


def rate_ratio(
    tops: npt.NDArray[Any],
    bottoms: npt.NDArray[Any],
    other_tops: npt.NDArray[Any],
    other_bottoms: npt.NDArray[Any],
) -> Estimate:
    """Estimate the quotient of two ratios of sums on the same units, paired; shapes (units,)."""
    influence, rates = np.zeros(len(tops)), []
    for top, bottom, sign in ((tops, bottoms, 1.0), (other_tops, other_bottoms, -1.0)):
        influence = influence + sign * (top / top.sum() - bottom / bottom.sum())
        rates.append(float(top.sum() / bottom.sum()))
    mean = rates[0] / rates[1]
    return estimate(mean, mean * influence)
