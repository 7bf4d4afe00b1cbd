"""otlp.batched.verify_without_replacement: lossless by enumeration, and nearly the optimum."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import otlp
from otlp.auditing.gtest import g_test
from tests.instances import brute_force_optimum

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.numerics import best_of  # noqa: E402
from otlp.batched.rows import prepare  # noqa: E402
from otlp.batched.without_replacement import score_plan  # noqa: E402


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on two to seven tokens, some with zeros, equal ones or tiny ones."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    p, q = rng.dirichlet(np.full(size, rng.choice([0.1, 0.5, 2.0])), size=2)
    kind = seed % 6
    if kind == 1:
        p, q = (
            np.where(rng.random(size) < 0.6, law, 0.0) + 1e-3 * one for law, one in ((p, 1), (q, 0))
        )
        q[0] += 0.1
    elif kind == 2:
        p = q.copy()
    elif kind == 3:
        p, q = (rng.integers(1, 4, size).astype(float) for _ in range(2))
    elif kind == 4:
        q = q * 10.0 ** rng.integers(-12, 1, size)
    elif kind == 5:
        half = max(1, size // 2)
        p[:half], q[half:] = 0.0, 0.0
    return p / p.sum(), q / q.sum()


def output_law(p: np.ndarray, q: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """What is selected, and verified, over all drafted sets, from the shares alone."""
    sets = otlp.WithoutReplacement(q, n).enumerate_sets()
    mass, tokens = torch.tensor(sets.mass), torch.tensor(sets.members.reshape(-1, n))
    rows = (torch.tensor(law).expand(1, -1) for law in (p, q))
    plan = score_plan(prepare(*rows, tokens[:1], True))
    shares = plan.shares[0, plan.place[0, tokens]]
    chance = mass[:, None] * best_of(shares, torch.ones(tokens.shape, dtype=torch.bool))
    selected = torch.zeros(p.size, dtype=torch.float64).index_add(0, tokens.ravel(), chance.ravel())
    y = plan.selection[0]
    accepted = selected * (torch.tensor(p) / torch.maximum(torch.tensor(p), y).clamp(min=1e-300))
    left = (torch.tensor(p) - y).clamp(min=0.0)
    if float(left.sum()) > 0:
        left = left / left.sum()
    return selected.numpy(), (accepted + left * (1.0 - accepted.sum())).numpy(), y.numpy()


@pytest.mark.parametrize("seed", range(36))
def test_the_law_by_enumeration(seed: int) -> None:
    p, q = random_case(seed)
    for n in range(1, min(4, np.count_nonzero(q)) + 1):
        selected, output, y = output_law(p, q, n)
        assert np.abs(selected - y).sum() < 1e-12
        assert np.abs(output - p).sum() < 1e-11
