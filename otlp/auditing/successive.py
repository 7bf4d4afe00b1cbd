"""Tests of independence of successive rounds, from pairs of results one to three rounds apart.

If rounds are independent, the law of a pair is the product of its marginals.  Random numbers that
are used again in a later round make the pairs dependent.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import scipy

from otlp.auditing.gtest import LEAST_EXPECTED, POWER, GTest, chi_squared_test
from otlp.distribution import IntArray

LAGS = (1, 2, 3)
"""Default distances of the rounds of a pair."""

MOST_CLASSES = 8
"""Maximum number of classes of results: the most frequent results, and one class for the rest."""

ENDS = {"first": 0, "last": -1}


def successive_tests(
    drafts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    rate: float,
    lags: Sequence[int] = LAGS,
) -> dict[str, GTest]:
    """Test whether drafts and outputs are independent of the outputs of earlier rounds.

    Parameters
    ----------
    drafts, outputs : sequence of sequence of int
        Tokens of each round, in the order of play.
    rate : float
        False-alarm rate of all tests together.
    lags : sequence of int
        Distances of the rounds of a pair.

    Returns
    -------
    dict of str to GTest
        The tests by the paired quantities.
    """
    lengths = _classes([len(output) for output in outputs])
    first, last = (_classes([output[at] for output in outputs]) for at in (0, -1))
    earlier = {"first token": first, "last token": last, "number of tokens": lengths}
    later = {"first token": first, "number of tokens": lengths}
    later |= {f"{at} draft": _classes([row[i] for row in drafts]) for at, i in ENDS.items()}
    share = rate / (len(earlier) * len(later) * len(lags))
    return {
        f"{what} with {other}, {lag} later": independence_test(before[:-lag], after[lag:], share)
        for lag in lags
        for what, before in earlier.items()
        for other, after in later.items()
    }


def independence_test(first: IntArray, second: IntArray, rate: float) -> GTest:
    """Return the G-test of independence of two columns of classes, numbered from 0.

    Parameters
    ----------
    first, second : ndarray of int, shape (N,)
        Pairs, which may overlap in time: x[t], y[t + lag] of independent (x, y)[t].
    rate : float
        False-alarm rate of the test.

    Returns
    -------
    GTest
        `GTest.detectable` is the total variation between the law of the pairs and the product of
        its marginals.

    Notes
    -----
    In the limit, G has (a - 1)(b - 1) degrees of freedom for a and b classes, also for overlapping
    pairs of a sequence (Bartlett 1951; Hoel 1954); Williams (1976) corrects the mean of G.
    """
    shape = int(first.max()) + 1, int(second.max()) + 1
    seen = np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1]).reshape(shape)
    rows, columns, samples = seen.sum(axis=1), seen.sum(axis=0), int(seen.sum())
    degrees = (int(np.count_nonzero(rows)) - 1) * (int(np.count_nonzero(columns)) - 1)
    if degrees == 0:
        return GTest(0.0, 0, 1.0, samples, 0, 1.0, POWER, rate)
    expected = np.outer(rows, columns) / samples
    statistic = 2.0 * float(scipy.special.rel_entr(seen.astype(float), expected).sum())
    spread = [samples * float((1.0 / side[side > 0]).sum()) - 1.0 for side in (rows, columns)]
    statistic = max(0.0, statistic / (1.0 + spread[0] * spread[1] / (6.0 * samples * degrees)))
    return chi_squared_test(statistic, degrees, samples, rate)


def _classes(results: Sequence[Hashable]) -> IntArray:
    """Return classes such that each pair of classes has an expected count of at least 10."""
    numbers: dict[Hashable, int] = {}
    found = np.array([numbers.setdefault(result, len(numbers)) for result in results])
    counts = np.bincount(found)
    least = np.sqrt(LEAST_EXPECTED * len(results))
    order = np.argsort(-counts, kind="stable")
    kept = [number for number in order[: MOST_CLASSES - 1] if counts[number] >= least]
    rest = counts.sum() - counts[kept].sum()
    if kept and 0 < rest < least:
        kept.pop()
    classes = np.full(counts.size, len(kept), dtype=np.int64)
    classes[kept] = np.arange(len(kept))
    chosen: IntArray = classes[found]
    return chosen
