"""Texts of captures: only consecutive rows are joined, and no token is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otlp.data.captures import keep_top
from otlp.decode import iid_paths
from otlp.decode.drafting import mixed_tree
from otlp.errors import InvalidInputError
from otlp.studies.estimate import rate_ratio
from otlp_lab.design import WrittenText, tournament_profile
from otlp_lab.design.node_acceptance import mean_acceptance
from otlp_lab.design.statistics import Candidate
from otlp_lab.design.written_texts import captured_texts
from tests.example_captures import make

SOURCE = "text decoded from the target at temperature 1"


def test_a_gap_between_rows_ends_a_text() -> None:
    """Rows of one passage whose texts continue each other, with a gap."""
    logits = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
    capture = make(
        *logits, source=SOURCE, next_tokens=np.arange(6) % 5,
        positions=np.array([2, 3, 4, 9, 10, 3]), contexts=("a", "ab", "abc", "abcd", "abcde", "x"),
    )  # fmt: skip
    assert np.unique(capture.passages).size == 2
    assert [text.tokens.tolist() for text in captured_texts(capture, 1.0)] == [
        [0, 1, 2], [3, 4], [0],
    ]  # fmt: skip


def test_tokens_that_were_not_kept_are_the_last() -> None:
    """Predictions equal those of whole rows with the draft cut to the stored tokens."""
    rng = np.random.default_rng(1)
    target = rng.normal(size=(12, 9)).astype(np.float32) * 2
    order = np.argsort(np.argsort(-target, axis=1), axis=1)
    draft = (-order).astype(np.float32) * rng.uniform(0.2, 1.5, size=(12, 1)).astype(np.float32)
    tokens = np.array([rng.choice(9, p=np.exp(row) / np.exp(row).sum()) for row in target])
    tokens[3] = np.argmin(target[3])
    whole = make(
        target, draft, source=SOURCE, next_tokens=tokens, positions=np.arange(12),
        contexts=tuple("x" * row for row in range(12)),
    )  # fmt: skip
    top = keep_top(whole, 4)
    (text,) = captured_texts(top, 1.0)
    assert (
        text.tokens[3] == 9
        and (order[np.arange(12), tokens] >= 4).sum() == (text.tokens == 9).sum()
    )
    pairs = [whole.distributions(row, top_k=4) for row in range(12)]
    cut = WrittenText(tokens, *(np.stack(some) for some in zip(*pairs, strict=True)))
    for paths in (1, 2, 3):
        drafting = iid_paths(paths, 3)
        np.testing.assert_allclose(
            tournament_profile(text, drafting, 3), tournament_profile(cut, drafting, 3), atol=1e-6
        )


def test_tokens_that_are_not_proposed_are_one_at_each_place() -> None:
    """Also with trees that have more certain children than the draft has tokens."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(60), size=6)
    q = rng.dirichlet(np.ones(60), size=6) * (rng.random((6, 60)) < 0.05)
    q[:, 7] += 0.1
    text = WrittenText(rng.integers(60, size=6), p, q / q.sum(axis=1, keepdims=True))
    for place, (token, joined_p, joined_q) in enumerate(text.places):
        own = int(text.tokens[place])
        assert joined_p.sum() == pytest.approx(1.0) and joined_q.sum() == pytest.approx(1.0)
        assert joined_p[token] == p[place, own] and joined_q[token] == text.drafts[place, own]
        assert joined_p.size < 30
    # one path of one token is speculative sampling: A/P is min(1, q/p)
    found = tournament_profile(text, iid_paths(1, 1), 1)[:, 1]
    written = np.arange(5), text.tokens[:5]
    wanted = np.minimum(1.0, text.drafts[written] / p[written])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    dense = replace(text)
    dense.__dict__["places"] = list(
        zip(text.tokens.tolist(), text.targets, text.drafts, strict=True)
    )
    np.testing.assert_allclose(mean_acceptance([text], 8, 4), mean_acceptance([dense], 8, 4))
    drafting = mixed_tree(((8, 1), (2, 0)))
    np.testing.assert_allclose(
        tournament_profile(text, drafting, 3), tournament_profile(dense, drafting, 3), atol=1e-12
    )


def test_candidates_are_compared_text_by_text() -> None:
    one = Candidate("paths", (1, 2), 2, 2, 1.5, 0.1, tokens=(3.0, 6.0), calls=(2.0, 4.0))
    two = Candidate("paths", (2, 2), 4, 2, 1.8, 0.1, tokens=(3.6, 7.5), calls=(2.0, 4.0))
    assert one.is_chain and not two.is_chain
    sums = map(np.array, (two.tokens, two.calls, one.tokens, one.calls))
    assert two.over(one) == rate_ratio(*sums)
    # Both are better on the second text: the paired ratio has a smaller error than each mean.
    assert two.over(one).high - two.over(one).low < 1.0
    unknown = replace(one, tokens=(), calls=())
    assert two.over(unknown).mean == pytest.approx(1.2) and np.isnan(two.over(unknown).low)
    with pytest.raises(InvalidInputError, match="one entry per text"):
        replace(one, calls=(2.0,))
    with pytest.raises(InvalidInputError):
        replace(one, tokens=("x", 1.0))
