"""Truncation sets are minimal and within their error; buckets contain all tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.reductions.complementary_slackness import split
from otlp.reductions.truncation import into_buckets, singletons, truncation
from tests.examples import examples
from tests.instances import iid_problems

taus = st.sampled_from([0.3, 1e-1, 1e-2, 1e-3, 1e-6])


@given(iid_problems(), taus)
@examples(60)
def test_truncation_is_the_smallest_that_keeps_tau(problem, tau):
    q, n = problem.drafts.draft, problem.n
    for one in split(problem):
        side, base = one.accepting, one.ignored
        whole = q[one.subset].sum() if one.inside else 1.0
        assert base == (0.0 if one.inside else pytest.approx(q[one.subset].sum(), abs=1e-15))
        tokens, error = truncation(q, n, side, base, tau)
        assert error <= tau
        assert error == pytest.approx(whole**n - (base + q[tokens].sum()) ** n, abs=1e-12)
        assert side[tokens].all()
        if tokens.size:  # Any set with one token fewer would omit more than tau.
            fewer = base + q[tokens[:-1]].sum()
            assert whole**n - fewer**n > tau - 1e-12
            others = side.copy()
            others[tokens] = False
            assert q[tokens].min() >= q[others].max(initial=0.0)


@given(iid_problems(), taus, st.integers(1, 6))
@examples(60)
def test_buckets_partition_and_say_their_mismatch(problem, tau, limit):
    q, wanted = problem.drafts.draft, split(problem).outer.wanted
    tokens = np.flatnonzero((q > 0.0) & (wanted > 0.0)).astype(np.int64)
    if not tokens.size:
        return
    tokens = np.array(sorted(tokens, key=lambda x: wanted[x] / q[x]))
    buckets = into_buckets(q, wanted, tokens, tau, limit)
    assert len(buckets) <= limit
    assert (np.flatnonzero(buckets.labels >= 0) == np.sort(tokens)).all()
    assert sorted(set(buckets.labels[tokens].tolist())) == list(range(len(buckets)))
    own = buckets.labels[tokens]
    np.testing.assert_allclose(np.bincount(own, q[tokens]), buckets.draft, rtol=1e-12)
    np.testing.assert_allclose(np.bincount(own, wanted[tokens]), buckets.wanted, rtol=1e-12)
    parts_of_buckets = buckets.wanted[own] * (q[tokens] / buckets.draft[own])
    error = np.abs(wanted[tokens] - parts_of_buckets).sum()
    assert buckets.mismatch == pytest.approx(error, rel=1e-9, abs=1e-15)
    if len(buckets) == tokens.size:
        assert buckets.mismatch <= 1e-15
    enough = buckets.raised().wanted[own] * (q[tokens] / buckets.draft[own])
    assert (enough >= wanted[tokens] * (1.0 - 1e-12)).all()
    assert singletons(q, wanted, tokens).mismatch == 0.0


def test_few_buckets_are_enough_for_many_tokens():
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.full(50_000, 0.1))
    draft = draft[draft > 0.0]
    wanted = draft * (1.0 + np.tanh(rng.standard_normal(draft.size)))
    tokens = np.argsort(wanted / draft)
    for tolerance in (1e-1, 1e-2, 1e-3):
        buckets = into_buckets(draft, wanted, tokens, tolerance, 10_000)
        assert buckets.mismatch <= tolerance
        assert len(buckets) <= 1.0 / tolerance


def test_tokens_of_equal_ratio_are_one_bucket():
    draft = np.array([0.1, 0.2, 0.3, 0.4])
    buckets = into_buckets(draft, 0.5 * draft, np.arange(4), 1e-9, 4)
    assert len(buckets) == 1
    assert buckets.mismatch <= 1e-16
