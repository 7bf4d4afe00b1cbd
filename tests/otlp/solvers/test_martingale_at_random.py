"""The exact solver for i.i.d. drafts on random problems, against an implementation by sorting."""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.distribution import FloatArray
from otlp.drafts import IID
from otlp.numerics import ratio_bins
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee
from otlp.solvers import Martingale
from tests.instances import brute_force_optimum

TOLERANCE = 1e-12
"""For up to 64 drafts; proportional to n beyond, as the n-th power multiplies rounding errors."""

DRAFTS = (1, 1, 2, 2, 3, 4, 5, 8, 16, 64, 300)


def sorted_optimum(p: FloatArray, q: FloatArray, n: int) -> float:
    """1 - max (Q^n - P)^+ over prefixes by p/q ascending, in extended precision."""
    p, q = p[q > 0.0], q[q > 0.0]
    with np.errstate(over="ignore"):
        order = np.argsort(p / q, kind="stable")
    reach = np.cumsum(q[order].astype(np.longdouble)) ** n
    return 1.0 - max(0.0, float((reach - np.cumsum(p[order].astype(np.longdouble))).max()))


def pair(rng: np.random.Generator, size: int) -> tuple[FloatArray, FloatArray]:
    """Return a target and a draft of one of sixteen kinds."""
    spread = rng.choice([0.02, 0.05, 0.3, 1.0, 3.0])
    p, q = rng.dirichlet(np.full(size, spread)), rng.dirichlet(np.full(size, spread))
    with np.errstate(all="ignore"):
        match int(rng.integers(16)):
            case 0:  # like language models
                q = np.exp(rng.normal(0.0, 2.0, size))
                p = q * np.exp(rng.normal(0.0, 0.3, size))
            case 1:
                p = q.copy()
            case 2:  # ratios that differ in the last bit
                p = np.where(rng.random(size) < 0.5, q, np.nextafter(q, 1.0))
            case 3:
                p = q * (1.0 + 1e-12 * rng.normal(size=size))
            case 4:
                p = q * rng.integers(0, 4, size)
            case 5:
                p, q = rng.integers(0, 4, (2, size)).astype(float)
            case 6:
                p, q = q * 10.0 ** rng.uniform(-300, 0, size), p * 10.0 ** rng.uniform(-300, 0)
            case 7:  # all tokens in one bin, or in few
                p = q * (1.0 + 2.0 ** -rng.uniform(1, 30) * rng.random(size))
            case 8:  # masses of 1e-300, and subnormal masses
                p = p * (np.arange(size) < size // 2)
                q = q * rng.choice([1.0, 1e-300, 1e-310, 0.0], size)
            case 9:
                q = q * (rng.random(size) < 0.5)
            case 10:
                p = p * (rng.random(size) < 0.5)
            case 11:  # every prefix is tight
                p = np.diff(np.append(0.0, np.cumsum(q)) ** int(rng.integers(1, 6)))
            case 12:
                q = np.ones(size)
            case 13:
                p, q = 10.0 ** rng.uniform(-40, 0, (2, size))
            case 14:
                p = (np.arange(size) == rng.integers(size)) * 1.0
            case 15:
                q = (np.arange(size) == rng.integers(size)) * 1.0
    return normalized(p), normalized(q)


def normalized(weights: FloatArray) -> FloatArray:
    weights = np.maximum(weights, 0.0)
    total = float(weights.sum())
    return weights / total if 0.0 < total < np.inf else np.full(weights.size, 1.0 / weights.size)


def check(problem: otlp.Problem) -> None:
    """Check acceptance, output and bound, and that no claim exceeds the truth."""
    assert isinstance(problem.drafts, IID)
    best = sorted_optimum(problem.target, problem.drafts.draft, problem.n)
    solution, tolerance = Martingale().solve(problem), TOLERANCE * max(1.0, problem.n / 64)
    assert solution.guarantee is Guarantee.OPTIMAL, str(solution)
    assert solution.acceptance == pytest.approx(best, abs=tolerance)
    assert solution.marginal_error <= tolerance
    assert solution.upper_bound == pytest.approx(best, abs=tolerance)
    assert subset_selection(problem)[0] == pytest.approx(best, abs=tolerance)
    if problem.vocab_size <= 5 and problem.n <= 4:
        assert best == pytest.approx(brute_force_optimum(problem), abs=tolerance)


def check_many(monkeypatch: pytest.MonkeyPatch, seed: int, count: int, most: int) -> None:
    """Sizes uniform in the logarithm; bins from an octave wide to the narrowest."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        monkeypatch.setattr(ratio_bins, "SPARED_BITS", int(rng.integers(-8, 20)))
        size = int(np.exp(rng.uniform(0.0, np.log(most))))
        p, q = pair(rng, size)
        check(otlp.Problem(p, IID(q, int(rng.choice(DRAFTS)))))


@pytest.mark.parametrize("seed", range(4))
def test_problems_of_every_kind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_many(monkeypatch, seed, 200, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_more_problems_of_every_kind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_many(monkeypatch, seed, 2_000, 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 204))
def test_large_vocabularies_of_every_kind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for size in (30_000, 2**17, 2**18):
        for _ in range(8):
            p, q = pair(rng, size)
            check(otlp.Problem(p, IID(q, int(rng.choice(DRAFTS)))))
