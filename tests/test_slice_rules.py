"""Rules with more slices: what they share out adds up, and none is above the best on the tree."""

from __future__ import annotations

import numpy as np
import pytest

from bench.slice_rules import RULES, Family, Node, ScoreLaw, random_family, rule_efficiency
from otlp.decode import iid_paths
from otlp.decode.laws.information_lp import on_tree_optimum
from otlp.decode.laws.slot_laws import tournament_efficiency


@pytest.mark.parametrize("name", RULES)
def test_the_tokens_share_every_slice(name: str) -> None:
    """The kernel's rows are the draft, its columns the slices: so the rule is lossless."""
    rng = np.random.default_rng(0)
    family = random_family(3, 2, 1, rng)
    edges = np.array([0.0, 0.2, 0.6, 1.0])
    for weight in (1.0, 0.7, 0.0):
        law = ScoreLaw(3, edges, rng.dirichlet(np.ones(3)))
        q, p = family.options[()][0]
        split = RULES[name](Node((), law, weight, q, p), family)
        cumulative = np.interp(split.edges, edges, np.append(0.0, np.cumsum(law.masses)))
        np.testing.assert_allclose(split.kernel.sum(axis=1), q, atol=1e-7)
        np.testing.assert_allclose(split.kernel.sum(axis=0), np.diff(cumulative), atol=1e-7)
        assert split.kernel.min() >= -1e-9


def test_rules_on_tokens_that_are_never_drafted() -> None:
    q, p = np.array([0.5, 0.5, 0.0]), np.array([0.1, 0.3, 0.6])
    family = Family(2, {(): [(q, p)], (0,): [(q, p)], (1,): [(p, q)], (2,): [(q, p)]})
    drafting = iid_paths(2, 2)
    best = on_tree_optimum(family.pairs, drafting)
    for rule in RULES.values():
        assert 1.0 < rule_efficiency(family, 2, rule) <= best + 1e-6


def test_the_best_rule_on_the_tree_bounds_all() -> None:
    family = random_family(2, 2, 2, np.random.default_rng(1))
    reached = {name: rule_efficiency(family, 2, rule) for name, rule in RULES.items()}
    assert max(reached.values()) <= on_tree_optimum(family.pairs, iid_paths(2, 2)) + 1e-6
    same = np.mean([tournament_efficiency(*pair, iid_paths(2, 2)) for pair in family.pairs])
    assert reached["two slices"] == pytest.approx(same, abs=1e-9)
