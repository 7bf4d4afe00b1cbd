"""Approximate plans: accepted on request, with an error bound; else refused by name."""

from itertools import product

import numpy as np
import pytest

import otlp
from otlp import Guarantee
from otlp.decode import BottomUp, TopDown, iid_paths, play_round, random_pair
from otlp.decode.laws.round_laws import round_law
from otlp.errors import InvalidInputError
from otlp.solvers import GlobalResolution, KSeq
from otlp_lab.laws.prefix_laws import prefix_law

TAU, V, K = 0.05, 3, 2
PUBLISHED = TopDown(GlobalResolution.published(TAU), guarantee=Guarantee.APPROXIMATE)


def errors_by_level(draft, target, length):
    """Return the largest L1 error of a plan after prefixes of each length."""
    worst = []
    for level in range(length):
        found = []
        for prefix, n in product(product(range(V), repeat=level), range(1, K + 1)):
            p, q = target.distribution(prefix), draft.distribution(prefix)
            plan = PUBLISHED.plan(otlp.IID(q, n), p)
            found.append(np.abs(plan.marginals().output - p).sum())
        worst.append(max(found))
    return worst


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_over_many_levels_errors_at_most_add_up(length):
    """Theorem R.1, with the law of a round enumerated."""
    draft, target = random_pair(V, length + 1, np.random.default_rng(7))
    law = prefix_law(draft, target, iid_paths(K, length), PUBLISHED).tokens
    error = np.abs(law - target.joint(length + 1)).sum()
    worst = errors_by_level(draft, target, length)
    assert 1e-4 < error <= sum(worst) + 1e-12
    assert max(worst) <= 15.0 * TAU
    if length < 3:
        whole = round_law(draft, target, iid_paths(K, length), PUBLISHED).tokens
        np.testing.assert_allclose(whole, law, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("limit", "some_fail"), [(1, True), (50, False)])
def test_a_fallback_stands_in_where_the_method_fails_and_is_counted(limit, some_fail):
    draft, target = random_pair(V, 3, np.random.default_rng(7))
    solver = GlobalResolution(TAU, "published", {1: limit}, newton_steps=0)
    rule = TopDown(solver, fallback="naive", guarantee=Guarantee.APPROXIMATE)
    rng, counts = np.random.default_rng(0), []
    for _ in range(30):
        for model in (draft, target):
            model.start(())
        played = play_round(draft, target, iid_paths(K, 2), rule, rng)
        tree, outcome = played.tree, played.outcome
        depths = range(len(played.accepted) + 1)
        way = {tuple(played.accepted[:depth]) for depth in depths}
        nodes = [node for node in tree.draws if tuple(tree.path(node)) in way]
        problems = [
            otlp.Problem(target.distribution(tuple(tree.path(node))), tree.schemes[node])
            for node in nodes
        ]
        assert outcome.fallbacks == sum(solver.solve(one).plan is None for one in problems)
        counts.append(outcome.fallbacks)
    assert (max(counts) > 1) == some_fail


def test_a_plan_short_of_the_guarantee_by_its_certificate_is_replaced():
    pair = random_pair(3, 2, np.random.default_rng(5))
    rule = TopDown(KSeq(), fallback="auto", guarantee=Guarantee.OPTIMAL)
    found = [prefix_law(*pair, iid_paths(K, 1), one) for one in (rule, TopDown(), TopDown("k-seq"))]
    assert found[0].block_efficiency == pytest.approx(found[1].block_efficiency, abs=1e-9)
    assert found[0].block_efficiency > found[2].block_efficiency + 1e-3


def test_an_approximate_rule_is_taken_only_by_name():
    solver = PUBLISHED.solver
    for arguments in ({"solver": solver}, {"solver": solver, "fallback": "naive"},
                      {"fallback": solver}):  # fmt: skip
        with pytest.raises(InvalidInputError, match=r"guarantee=otlp\.Guarantee\.APPROXIMATE"):
            TopDown(**arguments)
    for wrong in (Guarantee.NONE, "LOSSLESS", 2):
        with pytest.raises(InvalidInputError, match="guarantee must be"):
            TopDown(guarantee=wrong)
    with pytest.raises(InvalidInputError, match="total error has no bound"):
        BottomUp(PUBLISHED)
    with pytest.raises(InvalidInputError, match="step"):
        BottomUp("k-seq")
