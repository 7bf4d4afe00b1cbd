"""Distributions from rows of captures, and the contents of the built-in capture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import otlp
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


def test_a_masked_token_has_no_mass():
    logits = np.array([[0.0, -math.inf, 0.0]], dtype=np.float16)
    p, q = make(logits).distributions(0, temperature=0.3)
    assert p[1] == q[1] == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (0.0, -1.0, math.nan)),
        *(("draft_temperature", value) for value in (0.0, math.inf)),
        *(("top_p", value) for value in (0.0, 1.5, math.nan)),
        ("top_k", 0),
    ],
)
def test_arguments_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidInputError):
        example().distributions(0, **{name: value})


# --- passages ------------------------------------------------------------------------------------

TEXTS = ("Once upon a time", "Once more", "Onc\u00e9", "x", "")


@given(
    st.lists(
        st.tuples(st.sampled_from(range(len(TEXTS))), st.integers(-1, 20)), min_size=1, max_size=9
    )
)
def test_a_passage_goes_on_while_positions_or_its_text_do(rows):
    """Compared with a row-by-row implementation of the rule."""
    contexts = tuple(TEXTS[text][: max(position, 0)] for text, position in rows)
    positions = np.array([position for _, position in rows])
    capture = example(rows=len(rows), contexts=contexts, positions=positions)
    wanted = [1]
    for (_, before), (_, position), text, longer in zip(
        rows, rows[1:], contexts, contexts[1:], strict=False
    ):
        known = text != "" and longer != ""
        goes_on = longer.startswith(text) if known else position == before + 1
        wanted.append(wanted[-1] + (not (0 <= before < position and goes_on)))
    assert capture.passages.tolist() == wanted


def test_an_unfinished_character_is_of_the_same_passage():
    contexts = ("caf\ufffd", "caf\u00e9 au lait", "caf\u00e9 noir")
    capture = example(rows=3, contexts=contexts, positions=np.array([2, 5, 9]))
    assert capture.passages.tolist() == [1, 1, 2]


def test_another_text_is_another_passage_even_at_the_next_position():
    contexts = ("Once", "Once more", "def f(a", "def f(a, b")
    capture = example(rows=4, contexts=contexts, positions=np.array([3, 4, 5, 6]))
    assert capture.passages.tolist() == [1, 1, 2, 2]


# --- the built-in capture ------------------------------------------------------------------------


def test_the_builtin_capture_is_real_and_complete():
    capture = builtin()
    assert not capture.synthetic
    assert "synthetic" not in (capture.target_model + capture.draft_model).lower()
    assert "smollm2" in capture.target_model and "smollm2" in capture.draft_model
    assert capture.vocab_size == 49_152 + 1
    assert "49152" in capture.tokenizer
    assert len(capture) >= 160
    assert capture.kept >= 1500
    assert all(capture.contexts)
    assert capture.next_tokens.min() >= 0
    assert capture.source and capture.note
    assert "real rows, V = 49,152, float32, " in repr(capture)


def test_no_passage_and_no_position_rules_the_builtin_capture():
    capture = builtin()
    rows_each = np.bincount(capture.passages)[1:]
    assert rows_each.size >= 50 and rows_each.max() <= 4
    assert np.unique(capture.positions, return_counts=True)[1].max() <= 8
    assert sum(text.startswith("<|im_start|>") for text in capture.contexts) >= 40  # chats
    assert sum("def " in text and text[0] != "<" for text in capture.contexts) >= 40  # HumanEval


def test_the_builtin_capture_comes_from_models_that_read_the_text():
    capture = builtin()
    pairs = [capture.distributions(row) for row in range(len(capture))]
    tokens = capture.next_tokens
    chances = [[law[token] for law in pair] for pair, token in zip(pairs, tokens, strict=True)]
    # The target wrote the text: this is the rate at which a target sample equals the next token.
    wanted = np.array([[p @ p, p @ q] for p, q in pairs])
    error = np.std(chances - wanted, axis=0) / np.sqrt(len(pairs))
    assert (np.abs(np.mean(chances - wanted, axis=0)) < 4 * error).all()
    target, draft = np.mean(chances, axis=0)
    assert 0.1 < draft < target
    assert 0.25 < np.mean([np.minimum(p, q).sum() for p, q in pairs]) < 0.95


def test_what_the_builtin_capture_leaves_out_hardly_matters():
    capture = builtin()
    for temperature, most in ((1.0, 0.005), (0.6, 0.005)):
        lost = [capture.truncation(row, temperature) for row in range(len(capture))]
        assert np.mean(lost) < most


def test_the_builtin_capture_is_small_enough_to_ship():
    path = Path(otlp.__file__).parent / "data" / "capture.safetensors"
    assert path.stat().st_size <= 4_000_000
