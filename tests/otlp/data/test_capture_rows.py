"""Rows of captures become distributions; the capture that ships is what it says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from otlp.data.captures import builtin
from otlp.errors import InvalidInputError
from tests.example_captures import DTYPES, MEMORY, example, make

# --- distributions -------------------------------------------------------------------------------

# A small grid of values makes ties common.
small_logits = hnp.arrays(
    np.float32, st.integers(1, 12), elements=st.integers(-24, 24).map(lambda number: number / 8)
)
temperatures = st.floats(0.1, 10.0)


def exact_softmax(logits, temperature):
    peak = max(map(float, logits))
    weights = [math.exp((float(logit) - peak) / temperature) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), temperature=temperatures, other=temperatures)
def test_each_temperature_divides_its_logits(dtype, data, temperature, other):
    logits = data.draw(small_logits).astype(MEMORY[dtype])
    capture = make(logits[None], logits[None, ::-1], dtype=dtype)
    p, q = capture.distributions(0, temperature)
    assert p.dtype == q.dtype == np.float64
    np.testing.assert_allclose(p, exact_softmax(logits, temperature), rtol=1e-12)
    np.testing.assert_allclose(q, exact_softmax(logits[::-1], temperature), rtol=1e-12)
    same_p, other_q = capture.distributions(0, temperature, other)
    assert np.array_equal(same_p, p)
    np.testing.assert_allclose(other_q, exact_softmax(logits[::-1], other), rtol=1e-12)


@given(logits=small_logits, temperature=temperatures, data=st.data())
def test_top_k_keeps_exactly_k_tokens_of_the_draft(logits, temperature, data):
    k = data.draw(st.integers(1, logits.size))
    capture = make(logits[None])
    p, full = capture.distributions(0, temperature)
    same_p, q = capture.distributions(0, temperature, top_k=k)
    kept = sorted(range(logits.size), key=lambda token: (-logits[token], token))[:k]
    assert np.array_equal(same_p, p)
    assert set(np.flatnonzero(q)) == set(kept)
    np.testing.assert_allclose(q[kept], full[kept] / full[kept].sum(), rtol=1e-12)


@given(logits=small_logits, temperature=temperatures, mass=st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_prefix_that_reaches_the_mass(logits, temperature, mass):
    capture = make(logits[None])
    p, full = capture.distributions(0, temperature)
    same_p, q = capture.distributions(0, temperature, top_p=mass)
    count = np.count_nonzero(q)
    order = sorted(range(logits.size), key=lambda token: (-logits[token], token))
    assert np.array_equal(same_p, p)
    assert set(np.flatnonzero(q)) == set(order[:count])
    assert math.fsum(full[order[:count]]) >= mass - 1e-12
    assert math.fsum(full[order[: count - 1]]) < mass + 1e-12
    np.testing.assert_allclose(q.sum(), 1.0, rtol=1e-12)


def test_top_p_counts_the_mass_after_top_k():
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], dtype=np.float32))
    _, q = make(logits).distributions(0, top_k=2, top_p=0.5)
    assert np.array_equal(q, [1.0, 0.0, 0.0, 0.0])


def test_ties_go_to_the_lowest_token():
    _, q = make(np.zeros((1, 5), dtype=np.float16)).distributions(0, top_k=2)
    assert np.array_equal(q, [0.5, 0.5, 0.0, 0.0, 0.0])
    _, q = make(np.zeros((1, 5), dtype=np.float16)).distributions(0, top_p=0.3)
    assert np.array_equal(q, [0.5, 0.5, 0.0, 0.0, 0.0])


def test_a_masked_token_has_no_mass():
    logits = np.array([[0.0, -math.inf, 0.0]], dtype=np.float16)
    p, q = make(logits).distributions(0, temperature=0.3)
    assert p[1] == q[1] == 0.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"draft_temperature": 0.0},
        {"draft_temperature": math.inf},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_p": math.nan},
    ],
)
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InvalidInputError):
        example().distributions(0, **arguments)


# --- the capture that comes with the library -----------------------------------------------------


def test_the_builtin_capture_is_real_and_complete():
    capture = builtin()
    assert not capture.synthetic
    assert "synthetic" not in (capture.target_model + capture.draft_model).lower()
    assert capture.vocab_size == 4096
    assert "4096" in capture.tokenizer
    assert len(capture) == 160
    assert capture.dtype == "float16"
    assert all(capture.contexts)
    assert capture.next_tokens.min() >= 0
    assert capture.source
    assert "real" in repr(capture)


def test_the_builtin_capture_comes_from_models_that_read_the_text():
    capture = builtin()
    pairs = [capture.distributions(row) for row in range(len(capture))]
    tokens = capture.next_tokens
    target_loss = -np.mean([np.log(p[token]) for (p, _), token in zip(pairs, tokens, strict=True)])
    draft_loss = -np.mean([np.log(q[token]) for (_, q), token in zip(pairs, tokens, strict=True)])
    # A model that has read nothing has a loss of log 4096 = 8.3.
    assert target_loss < draft_loss < 6.0
    assert 0.4 < np.mean([np.minimum(p, q).sum() for p, q in pairs]) < 0.95


def test_the_builtin_capture_is_small_enough_to_ship():
    import otlp

    path = Path(otlp.__file__).parent / "data" / "capture.safetensors"
    assert path.stat().st_size <= 3_000_000
