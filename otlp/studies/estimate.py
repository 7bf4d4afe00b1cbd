"""Means over prompts or texts with 95% intervals: these are the independent units, tokens are not.

Ratios of sums over the units are linearised (the delta method), with Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from otlp.distribution import FloatArray, IntArray


@dataclass(frozen=True)
class Estimate:
    """A mean and the ends of its 95% confidence interval; these are NaN for a single unit."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Say the mean and half the width of the interval."""
        return self.show(2)

    def show(self, digits: int) -> str:
        """Say the mean and half the width of the interval with so many digits."""
        half = (self.high - self.low) / 2.0
        return f"{self.mean:.{digits}f}" + (f" ±{half:.{digits}f}" if np.isfinite(half) else "")

    def record(self) -> list[float | None]:
        """Mean and ends as JSON takes them, None for what is not finite."""
        values = (self.mean, self.low, self.high)
        return [value if np.isfinite(value) else None for value in values]


def estimate(mean: float, influence: FloatArray) -> Estimate:
    """Interval of a mean from what each unit adds to its error.

    Parameters
    ----------
    mean : float
    influence : ndarray, shape (units,)
        How far the mean moves for each unit, to first order; sums to zero.
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
        NaN where there is no value: such a row is left out.
    units : ndarray of int, shape (rows,)
        The unit of each row.

    Returns
    -------
    mean : Estimate
    rows : int
        The number of rows that have a value.
    """
    applied = ~np.isnan(values)
    valid = values[applied]
    mean = float(valid.mean()) if valid.size else float("nan")
    places = np.unique(units[applied], return_inverse=True)[1]
    influence = np.zeros(places.size and 1 + places.max())
    np.add.at(influence, places, (valid - mean) / max(valid.size, 1))
    return estimate(mean, influence), valid.size


def ratio(tops: npt.NDArray[Any], bottoms: npt.NDArray[Any]) -> Estimate:
    """Sum of the tops over the sum of the bottoms; both given for each unit, shape (units,)."""
    mean = float(tops.sum() / bottoms.sum())
    with np.errstate(invalid="ignore"):
        return estimate(mean, (tops - mean * bottoms) / bottoms.sum())


def rate_ratio(
    tops: npt.NDArray[Any],
    bottoms: npt.NDArray[Any],
    other_tops: npt.NDArray[Any],
    other_bottoms: npt.NDArray[Any],
) -> Estimate:
    """One ratio of sums over another on the same units, paired; shape (units,) each."""
    influence, rates = np.zeros(len(tops)), []
    for top, bottom, sign in ((tops, bottoms, 1.0), (other_tops, other_bottoms, -1.0)):
        influence = influence + sign * (top / top.sum() - bottom / bottom.sum())
        rates.append(float(top.sum() / bottom.sum()))
    mean = rates[0] / rates[1]
    return estimate(mean, mean * influence)
