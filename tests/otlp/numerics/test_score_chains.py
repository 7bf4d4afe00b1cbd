"""Scores as chains of powers and affine maps: parts of a score, and the best score."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import (
    Score,
    cell_of,
    drawn,
    powered,
    rise_in,
    root_score,
    sliced,
    slices,
    win_quantile,
)
from otlp.numerics.score_threshold import split as split_for
from otlp.numerics.score_threshold import threshold
from otlp.numerics.two_slice import shares
from tests.examples import examples

fractions = st.floats(0.01, 0.99)


def split(score: Score, wins: float, lower: float) -> Score:
    """Return a score with given fractions of mass and of wins below a position."""
    cell, offset = win_quantile(score, wins)
    below, above, _, _ = slices(score, cell, offset)
    bottom = float(np.exp(score.left[-1, 0]))
    return sliced(score, cell, offset, bottom * lower / below, lower / below, (1.0 - lower) / above)


def some_score(steps: list[tuple[float, float, float]]) -> Score:
    score = root_score()
    for power, wins, lower in steps:
        score = split(powered(score, power), wins, lower)
    return score


def rounding(score: Score) -> float:
    """Return the error bound of a score: z has rounding error, which is larger for thin cells.

    The total error is of the order of rounding, since thin cells are as rare.
    """
    return 1e-11 + 1e-14 / float(np.exp(score.widths.min()))


steps = st.lists(
    st.tuples(fractions, fractions, st.just(0.0) | st.floats(1e-15, 1.0)), min_size=1, max_size=3
)


@examples(12)
@given(steps, st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5))
def test_each_of_several_powers_wins_by_its_share(
    way: list[tuple[float, float, float]], shares: list[float]
) -> None:
    score = some_score(way)
    powers = np.array(shares) / sum(shares)
    chances = best_score([powered(score, float(h)) for h in powers])
    # no score wins below the first cell
    left = np.exp(score.left[-1, 0])
    np.testing.assert_allclose(chances, powers * (1.0 - left), rtol=0.0, atol=rounding(score))


@examples(30)
@given(steps, fractions)
def test_the_low_part_and_the_high_part_make_the_whole(
    way: list[tuple[float, float, float]], share: float
) -> None:
    score = some_score(way)
    cell, offset = win_quantile(score, share)
    reached, above, won_below, _ = slices(score, cell, offset)
    assert won_below == pytest.approx(share, rel=1e-9)
    bottom = float(np.exp(score.left[-1, 0]))
    low = sliced(score, cell, offset, bottom / reached, 1.0 / reached, 0.0)
    high = sliced(score, cell, offset, reached, 0.0, 1.0)
    chances = best_score([low, high])
    np.testing.assert_allclose(chances, [reached - bottom, above], rtol=0.0, atol=rounding(score))


@pytest.mark.parametrize("seed", range(4))
def test_best_score_against_a_fine_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = [some_score([tuple(rng.uniform(0.2, 0.9, 3)) for _ in range(2)]) for _ in range(3)]
    ends = np.unique(np.exp(np.concatenate([score.edges for score in scores])))
    # Refine the grid at the left ends, where densities may be infinite.
    places = [a + (b - a) * np.geomspace(1e-30, 1.0, 100_001) for a, b in pairwise(ends)]
    grid = np.unique(np.concatenate([ends, *places]))
    values = np.stack([distribution(score, grid) for score in scores])
    rises, middle = np.diff(values), 0.5 * (values[:, 1:] + values[:, :-1])
    sums = [np.sum(rises[k] * np.prod(np.delete(middle, k, axis=0), axis=0)) for k in range(3)]
    np.testing.assert_allclose(best_score(scores), sums, atol=1e-6)


def distribution(score: Score, z: np.ndarray) -> np.ndarray:
    """Return F at some positions, computed by the chain in ordinary arithmetic."""
    found = np.full(z.size, np.exp(score.left[-1, 0]))
    for i in range(score.masses.size):
        a, b = np.exp(score.edges[i]), np.exp(score.edges[i + 1])
        inside = z >= a
        value = np.minimum(z[inside], b)
        for j, power in enumerate(score.powers):
            start = np.exp(score.left[j, i])
            grown = value**power - start**power
            value = np.exp(score.left[j + 1, i]) + np.exp(score.slopes[j, i]) * grown
        found[inside] = value
    return found


@examples(40)
@given(
    st.lists(st.tuples(st.floats(0.3, 1.0), fractions, fractions), max_size=2),
    st.floats(1e-3, 0.999),
)
def test_scores_are_drawn_by_inversion(
    steps: list[tuple[float, float, float]], uniform: float
) -> None:
    score = powered(some_score(steps), 0.5)
    place = np.exp(np.array([drawn(score, uniform)]))
    bottom = float(np.exp(score.left[-1, 0]))
    if uniform < bottom:
        assert place[0] == 0.0
    else:
        assert distribution(score, place)[0] == pytest.approx(max(uniform, bottom), abs=1e-7)


def test_small_shares_lose_nothing() -> None:
    for share in (1e-3, 1e-9, 1e-25):
        chances = best_score([powered(root_score(), share), powered(root_score(), 1.0 - share)])
        assert chances[0] == pytest.approx(share, rel=1e-10)
        assert chances[1] == pytest.approx(1.0 - share, rel=1e-12)


chains = st.builds(some_score, steps).map(lambda score: powered(score, 0.6))


@examples(30)
@given(chains, st.floats(0.05, 1.0))
def test_the_links_rise_as_the_integral_of_their_rates(score: Score, part: float) -> None:
    for cell, width in enumerate(score.widths.tolist()):
        end = width + float(np.log(part))
        begin = end - 2.0

        def density(offset: float, cell: int = cell) -> float:
            rise, rate = rise_in(score, cell, offset)
            return float(np.exp(rise)) * rate

        rises = [float(np.exp(rise_in(score, cell, at)[0])) for at in (begin, end)]
        found = quad(density, begin, end, epsrel=1e-12)[0]
        assert found == pytest.approx(rises[1] - rises[0], rel=1e-9, abs=1e-300)


@examples(50)
@given(chains, st.integers(0, 2**32 - 1))
def test_the_threshold_falls_where_all_tokens_want_more(score: Score, seed: int) -> None:
    p, q = np.random.default_rng(seed).dirichlet(np.full(6, 0.5), 2)
    places = []
    for weight in (0.2, 0.5, 0.8, 0.95):
        cell, offset = threshold(score, weight, p, q)
        places.append(float(np.exp(score.edges[cell])) + float(np.exp(offset)))
    assert all(later <= earlier + 1e-7 for earlier, later in pairwise(places))


@examples(20)
@given(chains, st.integers(0, 2**32 - 1), st.floats(0.1, 1.0))
def test_the_childrens_scores_mix_to_the_parents(score: Score, seed: int, weight: float) -> None:
    p, q = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), 2)
    cut = split_for(score, weight, p, q)
    if cut.low >= cut.high:
        return
    bottom, grid = float(np.exp(score.left[-1, 0])), np.log(np.linspace(0.01, 1.0, 23))
    mixed = np.zeros(grid.size)
    for x in np.flatnonzero(q):
        lower, upper = shares(weight * p[x], q[x], cut.low, cut.high, cut.up, cut.down)
        lower, upper = lower / cut.below, upper / cut.above
        child = sliced(score, cut.cell, cut.offset, bottom * lower, lower, upper)
        mixed += q[x] * reached(child, grid)
    own = reached(score, grid)
    # At the top, the links of the parent reach 1 up to rounding.
    np.testing.assert_allclose(mixed, own, rtol=0.0, atol=MIXED + abs(1.0 - own[-1]))


MIXED = 1e-14


def reached(score: Score, grid: np.ndarray) -> np.ndarray:
    """Return F at the logarithms of some positions, computed by `slices`."""
    return np.array([slices(score, *cell_of(score, log_z))[0] for log_z in grid])
