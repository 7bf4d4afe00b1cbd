"""G-test of counts against a known law, with its power, and bounds on the total variation.

The pooling of cells depends on the law but not on the counts.  The interval for the total
variation is valid for every sample size; the p-value uses the chi-squared limit with Williams'
correction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from otlp.distribution import FloatArray, IntArray, Mask, total_variation

LEAST_EXPECTED = 10.0
"""Outcomes with a smaller expected count are pooled."""

POWER = 0.9
"""Probability of detection of a total variation of `GTest.detectable`."""

MOST_POOLS = 32
"""Maximum number of pooled cells."""


@dataclass(frozen=True)
class GTest:
    """A G-test (likelihood ratio test) of counts against a distribution.

    Attributes
    ----------
    statistic : float
        G with Williams' correction; infinite if an outcome of probability zero occurred.
    degrees : int
        Degrees of freedom: the number of cells minus one.
    p_value : float
        Probability of a statistic at least this large under the distribution.
    samples : int
        Number of samples.
    impossible : int
        Number of samples with probability zero under the distribution.
    detectable : float
        A total variation at least this large is detected with probability `power`.
    power : float
    rate : float
        False-alarm rate of the test.

    Examples
    --------
    >>> import otlp
    >>> def first_always(draft_tokens, p, q, rng):
    ...     return int(draft_tokens[0])
    >>> drafts = otlp.IID([0.9, 0.1], n=2)
    >>> sampled = otlp.auditing.AuditSettings(max_paths=1, samples=20_000)
    >>> report = otlp.audit(first_always, [0.5, 0.5], drafts, settings=sampled)
    >>> report.test.samples, report.test.rejected
    (20000, True)
    """

    statistic: float
    degrees: int
    p_value: float
    samples: int
    impossible: int
    detectable: float
    power: float
    rate: float

    def __str__(self) -> str:
        """Return the statistic and the p-value as text."""
        p_value = f"p-value {self.p_value:.3g}"
        if self.impossible:
            p_value = f"{self.impossible:,} outputs of target probability 0"
        return f"G = {self.statistic:.4g} on {self.degrees} degrees of freedom, {p_value}"

    @property
    def rejected(self) -> bool:
        """Whether the distribution is rejected at `rate`."""
        return self.impossible > 0 or self.p_value < self.rate


def g_test(counts: IntArray, law: FloatArray, rate: float, order: IntArray | None = None) -> GTest:
    """Test counts against a distribution.

    Parameters
    ----------
    counts : ndarray of int, shape (m,)
        Number of occurrences of each outcome; their sum N must be at least 1.
    law : ndarray, shape (m,)
        Probability of each outcome; sums to one.
    rate : float
        False-alarm rate of `GTest.detectable` and `GTest.rejected`.
    order : ndarray of int, shape (m,), optional
        A permutation of the outcomes; neighbors are pooled.  The order may depend on anything
        except the counts.  Default: by decreasing probability.

    Returns
    -------
    GTest

    Notes
    -----
    Outcomes whose expected count is under 10 are pooled into at most 32 cells.  Williams (1976)
    divides G by 1 + (sum_i 1 / law_i - 1) / (6 N (k - 1)) for k cells, so that the mean of G is
    k - 1 up to O(1/N^2).  `detectable` follows from two bounds: the noncentrality of a law r is
    N sum (r - p)^2 / p >= 4 N TV^2 over the cells (Cauchy-Schwarz), and pooling hides at most the
    pooled mass.
    """
    samples = int(counts.sum())
    expected = samples * law
    impossible = int(counts[law <= 0.0].sum())
    heavy = expected >= LEAST_EXPECTED
    light = ~heavy & (law > 0.0)
    pooled = float(law[light].sum())
    ranks = np.argsort(-law, kind="stable") if order is None else order
    cells = _pools(expected, light, ranks)
    observed = np.append(counts[heavy], np.bincount(cells, weights=counts[light])).astype(float)
    means = np.append(expected[heavy], np.bincount(cells, weights=expected[light]))
    if means.size > 1 and 0.0 < means[-1] < LEAST_EXPECTED:
        least = int(np.argmin(means[:-1]))
        observed[least] += observed[-1]
        means[least] += means[-1]
        observed, means = observed[:-1], means[:-1]
    degrees = means.size - 1
    if degrees == 0:
        found = np.inf if impossible else 0.0
        return GTest(found, 0, float(not impossible), samples, impossible, 1.0, POWER, rate)
    statistic = 2.0 * float(
        scipy.special.rel_entr(observed, means).sum() + samples - observed.sum()
    )
    correction = 1.0 + (samples * float((1.0 / means).sum()) - 1.0) / (6.0 * samples * degrees)
    statistic = np.inf if impossible else max(0.0, statistic / correction)
    return chi_squared_test(statistic, degrees, samples, rate, impossible, pooled)


def chi_squared_test(
    statistic: float,
    degrees: int,
    samples: int,
    rate: float,
    impossible: int = 0,
    hidden: float = 0.0,
) -> GTest:
    """Return the GTest, with its power, of a statistic that is chi-squared in the limit.

    Parameters
    ----------
    statistic, degrees : float, int
        Statistic and degrees of freedom, at least 1.
    samples, impossible : int
    rate : float
    hidden : float
        Total variation that pooling may hide.
    """
    critical = scipy.special.chdtri(degrees, rate)
    # Noncentrality at which the statistic exceeds the critical value with probability POWER.
    noncentrality = scipy.special.chndtrinc(critical, degrees, 1.0 - POWER)
    return GTest(
        statistic=statistic,
        degrees=degrees,
        p_value=float(scipy.special.chdtrc(degrees, statistic)),
        samples=samples,
        impossible=impossible,
        detectable=min(1.0, 0.5 * float(np.sqrt(noncentrality / samples)) + hidden),
        power=POWER,
        rate=rate,
    )


def _pools(expected: FloatArray, light: Mask, order: IntArray) -> IntArray:
    """Return the cell of each outcome of ``expected[light]``; neighbors in `order` share a cell.

    The expected count of a cell is at least 10, unless there is only one cell.
    """
    ranked = order[light[order]]
    before = np.cumsum(expected[ranked]) - expected[ranked]
    total = float(expected[ranked].sum())
    count = max(1, min(MOST_POOLS, int(total / (2.0 * LEAST_EXPECTED))))
    cells = np.zeros(expected.size, dtype=np.int64)
    if total > 0.0:
        cells[ranked] = np.minimum(before / total * count, count - 1)
    return cells[light]


def total_variation_interval(
    first: IntArray, second: IntArray, law: FloatArray, confidence: float
) -> tuple[float, float]:
    """Return bounds on the total variation between the law of the samples and a known law.

    Parameters
    ----------
    first, second : ndarray of int, shape (m,)
        Counts of two independent halves of the sample.
    law : ndarray, shape (m,)
    confidence : float
        The interval covers the total variation with at least this probability.

    Returns
    -------
    low, high : float

    Notes
    -----
    Low: consider the event of the outcomes that are too frequent in the first half.  The second
    half bounds the probability of the event (Clopper and Pearson), which exceeds the probability
    under the law by at most the total variation.

    High: on k cells the mean total variation between the empirical and the true law is at most
    sqrt((k - 1) / N) / 2 (Jensen), and the total variation exceeds its mean by at most
    sqrt(log(1 / delta) / (2 N)) with probability 1 - delta (McDiarmid).  The least likely outcomes
    are pooled, which hides at most their mass under the law; their number depends only on the law.
    """
    delta = 0.5 * (1.0 - confidence)
    excess = first > first.sum() * law
    size, hits = int(second.sum()), int(second[excess].sum())
    least = float(scipy.special.betaincinv(hits, size - hits + 1, delta)) if hits else 0.0
    low = max(0.0, least - float(law[excess].sum()))

    counts = first + second
    samples = int(counts.sum())
    order = np.argsort(-law, kind="stable")
    cells = np.arange(1, law.size + 1)
    hidden = np.append(np.cumsum(law[order][::-1])[::-1][1:], 0.0)  # Mass after the first k.
    kept = int(np.argmin(0.5 * np.sqrt(cells / samples) + hidden)) + 1
    empirical = counts[order] / samples
    apart = total_variation(
        np.append(empirical[:kept], empirical[kept:].sum()),
        np.append(law[order][:kept], hidden[kept - 1]),
    )
    noise = 0.5 * np.sqrt(kept / samples) + np.sqrt(np.log(1.0 / delta) / (2.0 * samples))
    return low, min(1.0, apart + float(noise) + float(hidden[kept - 1]))
