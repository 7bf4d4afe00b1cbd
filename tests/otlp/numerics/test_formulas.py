"""Shared formulas: slopes of powers, inclusion, running sums, the best score."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.numerics.ascending import ascending, by_ratio
from otlp.numerics.best_of import END, best_of
from otlp.numerics.inclusion import inclusion_probability
from otlp.numerics.positive_part import positive_part
from otlp.numerics.power_slope import power_slope
from otlp.numerics.prefix_sums import accumulate
from tests.examples import examples
from tests.instances import exact_best

masses = st.floats(0.0, 1.0)


@examples(60)
@given(a=masses, b=masses, n=st.integers(1, 40))
def test_slopes_are_exact(a: float, b: float, n: int) -> None:
    a, b = sorted((a, b))
    exact = sum(Fraction(a) ** i * Fraction(b) ** (n - 1 - i) for i in range(n))
    assert power_slope(a, b, n) == pytest.approx(float(exact), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("n", [10**9, 2**62, 2**63 - 1])
def test_the_largest_numbers_of_drafts(n: int) -> None:
    assert power_slope(1.0, 1.0, n) == pytest.approx(float(n))
    assert power_slope(0.5, 1.0, n) == pytest.approx(2.0)
    assert inclusion_probability(1e-30, n) == pytest.approx(n * 1e-30)


@examples(100)
@given(mass=masses, n=st.integers(1, 60))
def test_inclusion_is_exact(mass: float, n: int) -> None:
    exact = 1 - (1 - Fraction(mass)) ** n
    assert inclusion_probability(mass, n) == pytest.approx(float(exact), rel=1e-13, abs=0.0)


def test_running_sums_do_not_drift() -> None:
    values = np.full(1_000_000, 0.1)
    accumulate(values)
    assert values[-1] == pytest.approx(1_000_000 * 0.1, rel=2e-15)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), groups=st.integers(1, 4), cells=st.integers(1, 5))
def test_the_best_score(seed: int, groups: int, cells: int) -> None:
    """Compared with the integral over each cell in rational numbers."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, groups)
    shares = rng.dirichlet(np.full(cells, 0.5), groups) * (rng.random((groups, cells)) < 0.7)
    shares[:, -1] += 1.0 - shares.sum(axis=1)
    offsets = (cells + 1) * np.arange(groups + 1)
    rows = np.tile(np.append(np.arange(cells), END), groups)
    mass = np.hstack((shares, np.zeros((groups, 1)))).ravel()
    chances = best_of(counts, offsets, rows, mass)
    exact = np.array(exact_best(counts, shares), float)
    np.testing.assert_allclose(chances, exact, rtol=0.0, atol=1e-14)


def test_a_thousand_scores_on_one_cell() -> None:
    counts = np.array([1000, 3000])
    rows = np.array([0, END, 0, END])
    chances = best_of(counts, np.array([0, 2, 4]), rows, np.array([1.0, 0.0, 1.0, 0.0]))
    np.testing.assert_allclose(chances, [0.25, 0.75], rtol=1e-9)


@examples(20)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1, 7, 3_000, 5_000]))
def test_orders_are_those_of_a_stable_sort(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [0.0, -0.0, 5e-324, 1e-310, 1.0, np.nextafter(1.0, 2.0), 1e308, np.inf]
    wild = np.exp(rng.uniform(-700.0, 700.0, size))
    values = np.where(rng.random(size) < 0.5, rng.choice(edges, size), wild)
    with np.errstate(over="ignore"):
        for numbers in (values, values.astype(np.float32)):
            np.testing.assert_array_equal(ascending(numbers), np.argsort(numbers, kind="stable"))
    p, q = rng.choice([0.0, 5e-324, 0.25, 1.0], (2, size))
    order = by_ratio(p, q)
    assert sorted(order.tolist()) == list(range(size))
    with np.errstate(all="ignore"):
        ratio = np.where(q > 0.0, p / (q * 2.0**60), np.inf)[order]
    assert (ratio[:-1] >= ratio[1:]).all()  # so that no ratio overflows; subnormal ratios may tie


def test_positive_parts() -> None:
    left, total = positive_part(0.5, np.array([0.5, 0.5, 0.0]), 2.0, np.array([0.0, 0.2, 0.8]))
    assert left.tolist() == [0.25, 0.0, 0.0]
    assert total == 0.25
