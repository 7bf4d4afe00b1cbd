"""Acceptance under shared noise: closed forms, races, bounds and refused input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.numerics.coupled_acceptance import _acceptance_at, _Uncounted, coupled_acceptance

Pair = tuple[FloatArray, FloatArray]


def pairs(count: int, rng: np.random.Generator) -> list[Pair]:
    """Return rows of 3 to 30 tokens, some with truncated, equal or disjoint supports."""
    found = []
    for number in range(count):
        size = int(rng.integers(3, 31))
        p, q = rng.dirichlet(np.full(size, 0.5), size=2)
        if number % 4 == 1:
            p, q = (np.where(rng.random(size) < 0.3, 0.0, row) + 1e-9 * row for row in (p, q))
            p[0], q[-1] = 0.0, 0.0
        if number % 4 == 2:
            q = p if number % 8 == 2 else np.sqrt(p)
        if number % 8 == 3:
            p[::2], q[1::2] = 0.0, 0.0
        found.append((p / p.sum(), q / q.sum()))
    return found


def closed_form(p: FloatArray, q: FloatArray) -> float:
    both = [(a, b) for a, b in zip(p, q, strict=True) if a > 0.0 and b > 0.0]
    return float(sum(1.0 / np.maximum(p / a, q / b).sum() for a, b in both))


def races(p: FloatArray, q: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Return the rank of the target draw among the candidates; 1000 if it is not a candidate."""
    times = rng.standard_exponential((count, p.size))
    drawn = (p / times).argmax(axis=1)
    ratios = q / times
    own = np.take_along_axis(ratios, drawn[:, None], axis=1)
    ranks: FloatArray = np.where(own[:, 0] > 0.0, (ratios > own).sum(axis=1), 1000)
    return ranks


def assert_as_raced(pair: Pair, count: int, rng: np.random.Generator) -> None:
    ranks = races(*pair, count, rng)
    for n in range(1, 9):
        found, bound = coupled_acceptance(*pair, n)
        assert bound < 1e-300
        error = np.sqrt(max(found * (1.0 - found), 1.0 / count) / count)
        assert abs((ranks < n).mean() - found) < 5.2 * error, (pair, n)


def test_one_candidate_is_the_closed_form() -> None:
    """The quadrature, which n = 1 does not need, is also correct to 1e-12."""
    for p, q in pairs(40, np.random.default_rng(0)):
        exact = closed_form(p, q)
        assert coupled_acceptance(p, q, 1) == (pytest.approx(exact, abs=1e-13), 0.0)
        can = (p > 0.0) & (q > 0.0)
        if can.any():
            nothing = _Uncounted(p, q, np.flatnonzero(q)[:0])
            found, _ = _acceptance_at(p[can] / q[can], p, q, nothing, 1)
            assert float(p[can] @ found) == pytest.approx(exact, abs=1e-12)


def test_candidates_are_accepted_as_in_races() -> None:
    rng = np.random.default_rng(1)
    for pair in pairs(8, rng):
        assert_as_raced(pair, 20_000, rng)


@pytest.mark.slow
def test_candidates_are_accepted_as_in_a_million_races() -> None:
    rng = np.random.default_rng(2)
    for pair in pairs(16, rng):
        assert_as_raced(pair, 1_000_000, rng)


def test_known_cases() -> None:
    p = np.array([0.5, 0.3, 0.2, 0.0])
    q = np.array([0.1, 0.2, 0.3, 0.4])
    assert coupled_acceptance(p, p, 1)[0] == pytest.approx(1.0, abs=1e-12)
    assert coupled_acceptance(p, q, 4)[0] == pytest.approx(1.0, abs=1e-12)
    even = np.full(1000, 1e-3)
    assert coupled_acceptance(even, even, 2)[0] == pytest.approx(1.0, abs=1e-12)
    tiny = np.array([5e-324, 1.0]), np.array([1.0, 5e-324])
    assert 0.0 < coupled_acceptance(*tiny, 1)[0] <= 1e-300
    assert coupled_acceptance([1.0, 0.0], [0.0, 1.0], 2)[0] == 0.0
    point = np.eye(4)[1]
    # a certain target: a draw without replacement holds its token
    held = 0.2 + 0.2 * sum(q[j] / (1.0 - q[j]) for j in (0, 2, 3))
    assert coupled_acceptance(point, q, 2)[0] == pytest.approx(held, abs=1e-12)
    rising = [coupled_acceptance(p, q, n)[0] for n in (1, 2, 3, 4)]
    assert rising == sorted(rising)
    apart = 0.5 * np.abs(p - q).sum()
    assert (1.0 - apart) / (1.0 + apart) <= rising[0] <= 1.0 - apart


def test_what_is_cut_stays_within_its_bound() -> None:
    rng = np.random.default_rng(3)
    for spread in (0.05, 0.5):
        p, q = rng.dirichlet(np.full(150, spread), size=2)
        for n in (1, 2, 5):
            exact, none = coupled_acceptance(p, q, n, 150, 150)
            found, bound = coupled_acceptance(p, q, n, 20, 20)
            assert none < 1e-300
            assert abs(found - exact) <= bound + 1e-12
            assert bound < 0.05


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"n": 0}, "n must be .*, got 0"),
        ({"counted": 0}, "counted must be .*, got 0"),
        ({"knots": 0.5}, "knots must be .*, got 0.5"),
        ({"knots": 1}, "knots must be .*, got 1"),
        ({"q": [1.0]}, "p and q must have equally many tokens, got 2 and 1"),
        ({"p": [0.5, 0.4]}, "p must sum to 1 .*, got 0.9"),
    ],
)
def test_bad_input_is_named(wrong: dict[str, Any], match: str) -> None:
    given = {"p": [0.5, 0.5], "q": [0.5, 0.5], "n": 2} | wrong
    with pytest.raises(InvalidInputError, match=match):
        coupled_acceptance(**given)


def test_candidates_are_at_least_as_good_as_independent_tries() -> None:
    """Theorem 1 of docs/shared_noise.md, and the information bound of Theorem 2 for draws."""
    for p, q in pairs(24, np.random.default_rng(4)):
        can = (p > 0.0) & (q > 0.0)
        ratios = p[can] / q[can]
        rates = np.maximum(ratios[:, None] * q - p, 0.0).sum(axis=1)
        apart = 0.5 * np.abs(p - q).sum()
        worst = np.minimum(1.0, 1.0 / ratios) / (1.0 + apart)
        for n in (1, 2, 3, 8):
            found, _ = coupled_acceptance(p, q, n)
            tries = float(p[can] @ (1.0 - (rates / (1.0 + rates)) ** n))
            assert tries <= found + 1e-12
            assert float(p[can] @ (1.0 - (1.0 - worst) ** n)) <= tries + 1e-12
            if n == 1:
                assert tries == pytest.approx(found, abs=1e-12)
