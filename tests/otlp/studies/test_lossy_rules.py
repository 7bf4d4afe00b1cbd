"""Lossy rules: no acceptance above alpha* + TV, and outputs are distributions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import otlp
from otlp.studies.lossy_rules import LOSSY_RULES, cactus, measure_loss, typical
from tests.otlp.cli.command import done


@cache
def rows(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return random targets and drafts, some with a token outside the support of the other."""
    rng, found = np.random.default_rng(0), []
    for i in range(count):
        size = int(rng.integers(2, 12))
        p, q = rng.dirichlet(np.full(size, [0.1, 0.5, 1.0, 3.0][i % 4]), 2)
        if i % 5 == 0:
            q[rng.integers(size)] = 0.0
        if i % 7 == 0:
            p[rng.integers(size)] = 0.0
        found.append((p / p.sum(), q / q.sum()))
    return found


@pytest.mark.parametrize("name", LOSSY_RULES)
def test_no_rule_accepts_more_than_alpha_and_its_loss(name: str) -> None:
    for p, q in rows(700):
        output, accepted = LOSSY_RULES[name](p, q)
        assert output.min() >= -1e-12 and output.sum() == pytest.approx(1.0, abs=1e-9)
        loss = measure_loss(LOSSY_RULES[name], p, q)
        assert loss.acceptance == accepted <= loss.bound + 1e-9


@pytest.mark.parametrize("scheme", [otlp.IID, otlp.WithoutReplacement])
def test_nor_with_several_drafts(scheme: type) -> None:
    """The best rule on n drafts for a given output law."""
    for p, q in rows(5):
        if np.count_nonzero(q) < 3:
            continue
        best = otlp.optimal_acceptance(otlp.Problem(p, scheme(q, 3)))
        for rule in LOSSY_RULES.values():
            output = np.maximum(rule(p, q)[0], 0.0)
            wanted = otlp.Problem(output / output.sum(), scheme(q, 3))
            apart = 0.5 * np.abs(wanted.target - p).sum()
            assert otlp.optimal_acceptance(wanted) <= best + apart + 1e-9


def test_the_divergence_that_cactus_asks_for_is_exceeded() -> None:
    """At p = 1 / (1 + 2 delta), h is 1 with divergence log(1 + 2 delta), almost 2 delta."""
    delta = 0.05
    p = np.array([1.0 / (1.0 + 2.0 * delta), 2.0 * delta / (1.0 + 2.0 * delta)])
    loss = measure_loss(cactus(delta), p, np.array([1.0, 0.0]))
    assert loss.acceptance == pytest.approx(1.0, abs=1e-12)
    assert loss.kl == pytest.approx(np.log(1.0 + 2.0 * delta), abs=1e-12)
    assert loss.kl / delta > 1.9


def test_typical_acceptance_by_hand() -> None:
    p, q = np.array([0.6, 0.4]), np.array([0.5, 0.5])
    assert typical(0.5, 10.0)(p, q)[0].tolist() == [1.0, 0.0]
    assert typical(0.3, 10.0)(p, q) == (pytest.approx(q), 1.0)


def test_the_table_of_losses(tmp_path: Path) -> None:
    words = "compare --rows 2 --n 1 --schemes iid --rules naive --top-k 20 --lossy --json"
    printed = done(*words.split(), tmp_path / "found.json")
    assert "alpha* + TV" in printed and "lossy-beta-1" in printed
    found = json.loads((tmp_path / "found.json").read_text())["losses"]
    assert len(found) == 2 * len(LOSSY_RULES)
    assert all(one["acceptance"] <= one["bound"] + 1e-9 for one in found)
