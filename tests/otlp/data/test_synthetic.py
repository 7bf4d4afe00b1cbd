"""Synthetic logits: reproducible, labelled, and similar to those of a pair of language models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.data.captures import load, save
from otlp.data.synthetic import generate
from otlp.errors import InvalidInputError
from tests.examples import examples


def entropy(p):
    positive = p[p > 0]
    return -float(positive @ np.log(positive))


@examples(10)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 4),
    vocab_size=st.integers(1000, 3000),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_a_seed_fixes_every_number(seed, rows, vocab_size, dtype):
    first = generate(rows, vocab_size, seed=seed, dtype=dtype)
    again = generate(rows, vocab_size, seed=seed, dtype=dtype)
    more = generate(rows + 1, vocab_size, seed=seed, dtype=dtype)
    other = generate(rows, vocab_size, seed=seed + 1, dtype=dtype)
    for name in ("target_logits", "draft_logits"):
        logits = getattr(first, name)
        assert logits.shape == (rows, vocab_size)
        assert logits.dtype == dtype
        assert np.array_equal(logits, getattr(again, name))
        assert np.array_equal(logits, getattr(more, name)[:rows])
        assert not np.array_equal(logits, getattr(other, name))


def test_it_says_that_it_is_synthetic(tmp_path):
    save(generate(2, 1000), tmp_path / "capture")
    capture = load(tmp_path / "capture")
    assert capture.synthetic
    for label in (capture.target_model, capture.draft_model, repr(capture)):
        assert "synthetic" in label


@pytest.mark.parametrize(("rows", "vocab_size"), [(100, 1000), (5, 32_000), (1, 256_000)])
def test_every_row_is_in_the_stated_range(rows, vocab_size):
    capture = generate(rows, vocab_size, seed=5)
    for row in range(rows):
        p, q = capture.distributions(row)
        assert 0.49 < entropy(p) < 5.01
        assert 0.49 < np.minimum(p, q).sum() < 0.96


def test_rows_spread_like_those_of_a_language_model_pair():
    capture = generate(200, 1000, seed=11)
    pairs = [capture.distributions(row) for row in range(len(capture))]
    entropies = np.array([entropy(p) for p, _ in pairs])
    overlaps = np.array([np.minimum(p, q).sum() for p, q in pairs])
    assert abs(entropies.mean() - 2.0) < 0.25
    assert abs(overlaps.mean() - 0.75) < 0.03
    assert np.ptp(overlaps) > 0.35
    assert np.corrcoef(entropies, overlaps)[0, 1] < -0.3
    # The most likely token has most of the mass in some rows and little in others.
    peaks = [p.max() for p, _ in pairs]
    assert np.quantile(peaks, 0.1) < 0.35
    assert np.quantile(peaks, 0.9) > 0.75


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows must be .*, got 0"),
        ({"vocab_size": 999}, "vocab_size must be .*, got 999"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"seed": 1.5}, "seed must be .*, got 1.5"),
        ({"rows": "many"}, "rows must be .*, got .many."),
        ({"dtype": "bfloat16"}, "dtype must be .*, got 'bfloat16'"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        generate(**arguments)
