"""False-alarm rate and power of the G-test, and confidence of the interval.

Counts over a few hundred samples with fixed seeds. A correct implementation exceeds each limit
with probability below 1e-4.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from otlp.auditing.gtest import g_test, total_variation_interval
from otlp.distribution import total_variation

RUNS = 400


def laws() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        "few": np.array([0.5, 0.3, 0.2]),
        "many": rng.dirichlet(np.ones(80)),
        "long tail": rng.dirichlet(np.full(2000, 0.05)),
        "zeros": np.array([0.0, 0.4, 0.0, 0.6]),
    }


@pytest.mark.parametrize("name", laws())
def test_false_alarm_rate(name: str) -> None:
    law = laws()[name]
    rng = np.random.default_rng(5)
    counts = rng.multinomial(5000, law, size=RUNS)
    rejected = sum(g_test(row, law, 0.05).rejected for row in counts)
    low, high = stats.binom.ppf([1e-4, 1 - 1e-4], RUNS, 0.05)
    assert low <= rejected <= high


@pytest.mark.parametrize("name", laws())
def test_power(name: str) -> None:
    """The hardest deviation of the promised size is detected as often as promised."""
    law = laws()[name]
    rng = np.random.default_rng(6)
    samples, rate = 20_000, 1e-3
    detectable = g_test(rng.multinomial(samples, law), law, rate).detectable
    order = np.argsort(-law)
    moved = law.copy()
    # By a common factor on half of the mass: the least chi-squared for this total variation.
    half = order[np.cumsum(law[order]) <= 0.5 * law.sum() + 0.2]
    moved[half] *= 1.0 + detectable / law[half].sum()
    rest = np.setdiff1d(order, half)
    moved[rest] *= 1.0 - detectable / law[rest].sum()
    assert total_variation(moved, law) == pytest.approx(detectable)
    found = sum(
        g_test(row, law, rate).rejected for row in rng.multinomial(samples, moved, size=RUNS)
    )
    assert found >= stats.binom.ppf(1e-4, RUNS, 0.9)


@pytest.mark.parametrize("name", laws())
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_interval_covers(name: str, share: float) -> None:
    law = laws()[name]
    rng = np.random.default_rng(7)
    real = (1.0 - share) * law + share * rng.permutation(law)
    apart = total_variation(real, law)
    covered = 0
    for _ in range(RUNS):
        first, second = rng.multinomial(2000, real, size=2)
        low, high = total_variation_interval(first, second, law, 0.9)
        assert 0.0 <= low <= high <= 1.0
        covered += low <= apart <= high
    assert covered >= stats.binom.ppf(1e-4, RUNS, 0.9)


def test_impossible_counts_reject_at_any_rate() -> None:
    test = g_test(np.array([1, 5000]), np.array([0.0, 1.0]), 1e-300)
    assert test.rejected
    assert test.impossible == 1
    assert not g_test(np.array([0, 5000]), np.array([0.0, 1.0]), 0.999).rejected


def test_a_large_deviation_is_bounded_away_from_zero() -> None:
    law = np.full(4, 0.25)
    low, high = total_variation_interval(
        np.array([700, 100, 100, 100]), np.array([700, 100, 100, 100]), law, 0.99
    )
    assert 0.38 < low < 0.45 < high < 0.6
