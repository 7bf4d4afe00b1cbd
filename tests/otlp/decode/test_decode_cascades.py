"""Cascades: transformed target laws, and exact decoding from them."""

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.decode import (
    ALGORITHMS,
    Block,
    Speculative,
    TargetOnly,
    Traversal,
    TwoSlicePaths,
    iid_paths,
    mixed_tree,
    play_round,
    random_pair,
)
from otlp.decode.cascades import (
    RULES,
    BiLD,
    Cascade,
    Chow,
    Diff,
    GreedyCascade,
    GreedyTokenCascade,
    Lossy,
    Opt,
    OptLog,
    TokenCascade,
    TokenV1,
    TokenV2,
    TokenV3,
    greedy_distribution,
)
from otlp.decode.laws.round_laws import round_law, transformed_model
from otlp.errors import InvalidInputError
from otlp.studies.decoding import Setting
from otlp_lab.laws.prefix_laws import prefix_law
from tests.otlp.decode.tabular_rounds import assert_law_of, hard_laws

TRANSFORMS = [
    Lossy(0.3),
    Lossy(0.3, beta=1.0),
    *(Cascade(RULES[name](0.2)) for name in RULES if not name.startswith("token")),
    *(TokenCascade(RULES[name](0.2)) for name in RULES if name.startswith("token")),
]
Q = np.array([0.6, 0.3, 0.1])
P = np.array([0.1, 0.7, 0.2])


@pytest.mark.filterwarnings("error")
@given(hard_laws())
def test_transforms_give_laws(laws):
    q, p = laws
    for transform in [*TRANSFORMS, GreedyCascade(Opt(0.2)), GreedyTokenCascade(TokenV3(0.2))]:
        law = transform(q, p)
        assert (law >= 0.0).all()
        assert law.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.filterwarnings("error")
@given(hard_laws(), st.floats(0.0, 0.9))
def test_lossy_is_of_the_stated_form(laws, alpha):
    q, p = laws
    law = Lossy(alpha)(q, p)
    kept = np.minimum(q, p / (1.0 - alpha))
    assert (law >= kept - 1e-12).all()
    raised = law > kept + 1e-9
    # Where T exceeds min(q, p / (1 - alpha)), T is p / beta, with one beta >= 1 - alpha.
    if raised.any():
        level = law[raised] / p[raised]
        assert level == pytest.approx(level[0], rel=1e-6)
        assert level[0] <= (1.0 + 1e-9) / (1.0 - alpha)


@pytest.mark.parametrize("beta", [None, 1.0])
def test_no_leniency_is_the_target(beta):
    np.testing.assert_allclose(Lossy(0.0, beta=beta)(Q, P), P, atol=1e-15)


def test_lossy_with_beta_one_is_what_the_heuristic_outputs():
    # accept x with min(1, p / ((1 - alpha) q)), else draw from (p - q)^+
    accepted = Q * np.minimum(1.0, P / (0.8 * Q))
    left = np.maximum(P - Q, 0.0)
    output = accepted + (1.0 - accepted.sum()) * left / left.sum()
    np.testing.assert_allclose(Lossy(0.2, beta=1.0)(Q, P), output, atol=1e-15)


def test_rules_by_hand():
    # max q = 0.6, max p = 0.7, TV = 0.5
    assert Chow(0.3).defers(Q, P) and not Chow(0.5).defers(Q, P)
    assert Diff(0.05).defers(Q, P) and not Diff(0.2).defers(Q, P)
    assert Opt(0.15).defers(Q, P) and not Opt(0.25).defers(Q, P)
    discrepancy = -float(Q @ np.log(P))
    assert BiLD(discrepancy - 0.01).defers(Q, P) and not BiLD(discrepancy + 0.01).defers(Q, P)
    gap = -float(Q @ np.log(Q)) + float(P @ np.log(P))
    assert OptLog(2 * gap - 0.01).defers(Q, P) and not OptLog(2 * gap + 0.01).defers(Q, P)
    assert BiLD(3.0).defers(np.array([0.5, 0.5]), np.array([1.0, 0.0]))


def test_token_rules_by_hand():
    np.testing.assert_array_equal(TokenV1(0.2).defers(Q, P), [0, 1, 1])
    np.testing.assert_array_equal(TokenV2(0.55).defers(Q, P), [1, 0, 0])
    np.testing.assert_array_equal(TokenV3(0.8).defers(Q, P), [1, 0, 0])
    np.testing.assert_allclose(TokenCascade(TokenV2(0.55))(Q, P), [0.06, 0.72, 0.22], atol=1e-15)


@given(hard_laws(), st.floats(0.0, 1.0))
def test_greedy_opt_is_greedy_diff(laws, alpha):
    q, p = laws
    # Lemma 8, with the distance of the two point masses written out
    apart = float(np.argmax(q) != np.argmax(p))
    follows = p if q.max() < p.max() - alpha * apart else q
    np.testing.assert_array_equal(GreedyCascade(Opt(alpha))(q, p), greedy_distribution(follows))
    np.testing.assert_array_equal(GreedyCascade(Diff(alpha))(q, p), greedy_distribution(follows))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("verification", [Speculative(), Block(), TwoSlicePaths(), Traversal()])
def test_decoding_follows_the_transformed_law(transform, verification):
    pair = random_pair(3, 3, np.random.default_rng(1))
    drafting = iid_paths(1, 2) if isinstance(verification, Speculative | Block) else iid_paths(2, 1)
    law = round_law(*pair, drafting, verification, transform)
    assert_law_of(transformed_model(*pair, transform), law)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "autoregressive"])
def test_every_algorithm_follows_the_transformed_law(name):
    """An algorithm sees only the transformed law, not its origin."""
    paths = {"speculative": 1, "block": 1, "hub": 2, "tournament": 2, "target-only": 2}
    sizes = cycle([(2, 3, 2), (3, 2, 2), (4, 1, 3)])
    for transform, (vocab_size, length, most) in zip(TRANSFORMS, sizes, strict=False):
        draft, target = random_pair(vocab_size, length + 1, np.random.default_rng(3))
        aimed = transformed_model(draft, target, transform)
        drafting = Setting(name, paths.get(name, most), length).drafting
        assert_law_of(aimed, prefix_law(draft, aimed, drafting, ALGORITHMS[name]))


@pytest.mark.parametrize("transform", [GreedyCascade(Opt(0.2)), GreedyTokenCascade(TokenV3(0.5))])
def test_greedy_decoding_follows_the_transformed_law(transform):
    drafting = mixed_tree([(1, 0)] * 3)
    for seed in range(10):
        pair = random_pair(3, 4, np.random.default_rng(seed))
        law = round_law(*pair, drafting, TargetOnly(), transform)
        assert_law_of(transformed_model(*pair, transform), law)
        assert sorted(set(law.tokens.ravel().round(12))) == [0.0, 1.0]


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_bad_thresholds(bad):
    for rule in RULES.values():
        with pytest.raises(InvalidInputError, match="alpha"):
            rule(bad)
    with pytest.raises(InvalidInputError, match="alpha"):
        Lossy(bad)


def test_beta_outside_of_its_bounds():
    with pytest.raises(InvalidInputError, match=r"1 - alpha = 0\.7"):
        Lossy(0.3, beta=0.5)
    # here (p / 2 - q)^+ is zero everywhere for q = (.5, .5), p = (.4, .6)
    with pytest.raises(InvalidInputError, match=r"beta must be at most 1, got 2\.0"):
        Lossy(0.1, beta=2.0)


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (lambda q, p: 0.9 * p, r"must sum to 1 .*, got 0\.9"),
        (lambda q, p: p - 1.0, "must have finite entries >= 0"),
        (lambda q, p: p * np.nan, "= nan"),
        (lambda q, p: p[:-1] / p[:-1].sum(), "must have 3 entries, got 2"),
    ],
)
def test_a_round_refuses_what_is_no_distribution(transform, why):
    draft, target = random_pair(3, 2, np.random.default_rng(4))
    draft.start(())
    target.start(())
    with pytest.raises(InvalidInputError, match=f"the result of transform .*{why}"):
        play_round(draft, target, iid_paths(2, 1), Traversal(), np.random.default_rng(0), transform)
    with pytest.raises(InvalidInputError, match=why):
        round_law(draft, target, iid_paths(2, 1), Traversal(), transform)


@pytest.mark.parametrize("kind", [Cascade, GreedyCascade, TokenCascade, GreedyTokenCascade])
def test_rules_of_the_other_kind_are_refused(kind):
    rule = TokenV1(0.1) if kind in (Cascade, GreedyCascade) else Chow(0.1)
    with pytest.raises(InvalidInputError, match=r"must be a rule that defers by .*alpha=0\.1\)"):
        kind(rule)
