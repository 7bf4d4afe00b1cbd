"""Faster Cascades via Speculative Decoding: its lemmas, with a truth P beside draft q and target p.

Expected losses are sums over the vocabulary; a deferral rule at one prefix is a bit.
"""

import numpy as np
import pytest
from scipy.optimize import brentq

import otlp
from otlp.decode import cascades as c

ALPHAS = [0.0, 0.05, 0.2, 0.6]


def laws(count, seed=0):
    """Return truth, draft and target over five tokens: similar, different, with a sure draft."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        truth = rng.dirichlet(np.full(5, rng.choice([0.3, 1.0])))
        near = [
            (1 - mix) * truth + mix * rng.dirichlet(np.ones(5))
            for mix in rng.choice([0.05, 0.3, 0.9], 2)
        ]
        yield truth, *near


def zero_one(truth, law):
    """Return the expected 0-1 loss of the most likely token of the law."""
    return 1.0 - truth[np.argmax(law)]


def log_loss(truth, law):
    return -float(truth @ np.log(law))


def tv(a, b):
    return np.abs(a - b).sum() / 2


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lemmas_1_4_and_6_the_optimal_deferral(alpha):
    """Defer to the smaller risk (Eq. 3, 8 and 22), by the confidence of each model."""
    for _, q, p in laws(300):
        for loss, rules in (
            (lambda law: 1.0 - law.max(), (c.Diff, c.Opt, c.Chow)),
            (lambda law: -float(law @ np.log(law)), (c.DiffLog, c.OptLog, c.ChowLog)),
        ):
            deferred = loss(p) + alpha, loss(p) + alpha * tv(p, q), alpha
            for rule, risk in zip(rules, deferred, strict=True):
                if abs(loss(q) - risk) > 1e-12:
                    assert rule(alpha).defers(q, p) == (loss(q) > risk)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", [c.Chow(0.4), c.Diff(0.1), c.Opt(0.3), c.OptLog(0.5)])
def test_lemma_3_how_often_a_draft_is_rejected(rule):
    """r TV(p, q): speculative sampling of the cascade target, by its certified acceptance."""
    seen = set()
    for _, q, p in laws(100):
        problem = otlp.Problem(c.Cascade(rule)(q, p), otlp.IID(q, 1))
        rejected = 1.0 - otlp.solve(problem, "speculative-sampling").acceptance
        defers = rule.defers(q, p)
        seen.add(defers)
        assert rejected == pytest.approx(defers * tv(p, q), abs=1e-12)
    assert seen == {True, False}


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lemma_5_the_regret_of_opt(alpha):
    for truth, q, p in laws(500, seed=1):
        risks = [zero_one(truth, q), zero_one(truth, p) + alpha * tv(p, q)]
        regret = risks[c.Opt(alpha).defers(q, p)] - min(risks)
        assert regret <= np.abs(truth - q).max() + np.abs(truth - p).max() + 1e-12


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lemma_7_the_regret_of_opt_for_the_log_loss(alpha):
    for truth, q, p in laws(500, seed=2):
        risks = [log_loss(truth, q), log_loss(truth, p) + alpha * tv(p, q)]
        regret = risks[c.OptLog(alpha).defers(q, p)] - min(risks)
        most = [np.abs(np.log(law)).max() * np.abs(truth - law).sum() for law in (q, p)]
        assert regret <= sum(most) + 1e-12


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5])
def test_lemma_2_lossy_speculative_sampling(alpha):
    """Accept with min(1, p / ((1 - alpha) q)), else draw from (p / beta - q)^+; the law is T.

    Uses the beta for which T sums to one; with beta = 1 the residual is normalised.
    """
    for _, q, p in laws(100, seed=3):
        accepted = np.minimum(q, p / (1.0 - alpha))
        if accepted.sum() > 1.0 - 1e-12:  # nothing is rejected
            np.testing.assert_allclose(c.Lossy(alpha)(q, p), q, atol=1e-12)
            continue

        def aimed(beta, accepted=accepted, p=p):
            return np.maximum(accepted, p / beta)

        beta = brentq(lambda beta: aimed(beta).sum() - 1.0, 1.0 - alpha, 1e3) if alpha else 1.0
        left = np.maximum(p / beta - q, 0.0)
        assert accepted.sum() + left.sum() == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(accepted + left, aimed(beta), atol=1e-12)
        np.testing.assert_allclose(c.Lossy(alpha)(q, p), aimed(beta), atol=1e-9)
        left = np.maximum(p - q, 0.0)
        law = accepted + (1.0 - accepted.sum()) * left / left.sum()
        np.testing.assert_allclose(c.Lossy(alpha, 1.0)(q, p), law, atol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lemma_8_opt_becomes_diff_at_temperature_0(alpha):
    """Under greedy decoding both output the same token, by T of point masses."""
    for _, q, p in laws(300, seed=4):
        points = [c.greedy_distribution(q), c.greedy_distribution(p)]
        distance = tv(*points)
        opt = points[1] if q.max() < p.max() - alpha * distance else points[0]
        diff = points[1] if c.Diff(alpha).defers(q, p) else points[0]
        assert (opt == diff).all()
