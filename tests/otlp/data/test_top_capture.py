"""The k most likely tokens of each row: stored values are exact, and the loss is bounded."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.data.captures import Capture, TopCapture, TopRows, keep_top, load, save
from otlp.data.synthetic import generate
from otlp.drafts.scheme import DraftScheme
from otlp.errors import CaptureError, InvalidInputError
from tests import example_captures
from tests.damaged_files import without_checks
from tests.example_captures import LABELS, in_file, opened
from tests.examples import examples

ROUNDING = 1e-5
"""Rounding error of log-probabilities in float32."""


def make(*logits: Any) -> Capture:
    return example_captures.make(*(np.asarray(rows, dtype=np.float32) for rows in logits))


def drawn(rng: np.random.Generator, rows: int, vocab_size: int) -> Capture:
    """Draw rows with ties and masked tokens, from flat to peaked."""
    logits = rng.normal(size=(2, rows, vocab_size)) * rng.choice([0.1, 1.0, 4.0], (2, rows, 1))
    logits = np.round(4.0 * logits) / 4.0
    logits[rng.random(logits.shape) < 0.1] = -np.inf
    logits[:, :, 0] = 0.5
    return make(*logits)


def schemes(q: Any) -> list[DraftScheme]:
    found: list[DraftScheme] = [otlp.IID(q, 1), otlp.IID(q, 3)]
    if np.count_nonzero(q > 1e-200) > 1:
        found.append(otlp.WithoutReplacement(q, 2))
    return found


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(2, 9),
    kept=st.integers(1, 9),
    temperature=st.sampled_from([0.05, 0.5, 0.9, 1.0, 1.3, 5.0, 20.0]),
    data=st.data(),
)
def test_the_optimum_of_the_whole_row_lies_within_the_bound(
    seed: int, vocab_size: int, kept: int, temperature: float, data: st.DataObject
) -> None:
    capture = drawn(np.random.default_rng(seed), 1, vocab_size)
    top = keep_top(capture, kept)
    k = top.kept
    cut = {"temperature": temperature, "top_k": data.draw(st.integers(1, k))}
    p, q = capture.distributions(0, **cut)
    low, draft = top.distributions(0, **cut)
    np.testing.assert_allclose(draft[:-1], q, atol=ROUNDING)
    assert low.sum() == pytest.approx(1.0) and draft[-1] == 0.0
    assert (low[:-1] <= p + ROUNDING).all()
    loss = top.truncation(0, **cut)
    assert 0.0 <= loss <= low[-1] + ROUNDING
    for whole, part in zip(schemes(q), schemes(draft), strict=True):
        least = otlp.optimal_acceptance(otlp.Problem(low, part))
        best = otlp.optimal_acceptance(otlp.Problem(p, whole))
        assert least - ROUNDING <= best <= least + loss + ROUNDING
    inside = not np.any((q > 0.0) & (low[:-1] == 0.0) & (p > 0.0))
    if temperature == 1.0 and inside:
        known = low[:-1] > 0.0
        np.testing.assert_allclose(low[:-1][known], p[known], atol=ROUNDING)
    if temperature == 1.0 and set(np.flatnonzero(q)) <= set(likeliest(p, k)):
        assert loss == 0.0


def likeliest(p: Any, k: int) -> list[int]:
    return sorted(range(p.size), key=lambda token: (-p[token], token))[:k]


def test_the_bound_is_reached() -> None:
    """The whole rest may be on the one unknown draft token, or not at all."""
    draft = np.log([0.01, 0.01, 0.9, 0.08])
    top = keep_top(make([np.log([0.3, 0.4, 1e-30, 0.3])], [draft]), 2)
    assert top.truncation(0, top_k=1) == pytest.approx(0.3)
    p, q = top.distributions(0, top_k=1)
    assert otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 1))) == 0.0
    whole = keep_top(make([np.log([0.3, 0.4, 0.3, 1e-30])], [draft]), 2)
    assert whole.truncation(0, top_k=1) == pytest.approx(0.3)
    p, q = make([np.log([0.3, 0.4, 0.3, 1e-30])], [draft]).distributions(0, top_k=1)
    assert otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 1))) == pytest.approx(0.3)


def test_a_token_that_is_there_by_rounding_alone_counts_for_nothing() -> None:
    """Four equal tokens: the rest is two tokens, plus a rounding error of a third in float32."""
    target = np.array([[1.0, 1.0, 1.0, 1.0, -50.0, -50.0]]) - 0.7
    capture = make(target, [[0.0, 0.0, 0.0, 9.0, 0.0, 0.0]])
    top = keep_top(capture, 2)
    for rest in np.log(0.5) * (1.0 + np.array([-1e-7, 0.0, 1e-7])):
        rows = top.target_logits
        assert isinstance(rows, TopRows)
        off = TopRows(rows.ids, rows.logprobs, np.array([rest]), 6)
        moved = replace(top, target_logits=off)
        for temperature in (2.0, 20.0):
            cut = {"temperature": temperature, "top_k": 1}
            best = float(capture.distributions(0, **cut)[0][3])
            assert best <= moved.truncation(0, **cut) + ROUNDING


@pytest.mark.parametrize("temperature", [1e-320, 1e-5, 0.3, 1, 7.0, 1e300])
@pytest.mark.parametrize("kept", [1, 3, 6])
def test_no_temperature_is_too_low_or_too_high(temperature: float, kept: int) -> None:
    capture = drawn(np.random.default_rng(3), 20, 6)
    top = keep_top(capture, kept)
    for row in range(20):
        p, q = top.distributions(row, temperature)
        assert p.sum() == pytest.approx(1.0) and q.sum() == pytest.approx(1.0)
        assert 0.0 <= top.truncation(row, temperature) <= 1.0
        whole = capture.distributions(row, temperature)[0]
        assert (p[:-1] <= whole + ROUNDING).all()


def test_all_tokens_kept_is_the_whole_row() -> None:
    capture = drawn(np.random.default_rng(5), 10, 6)
    top = keep_top(capture, 100)
    assert top.kept == 6
    for row in range(10):
        pairs = zip(top.distributions(row, 0.7), capture.distributions(row, 0.7), strict=True)
        for found, whole in pairs:
            np.testing.assert_allclose(found[:-1], whole, atol=ROUNDING)
            assert found[-1] == 0.0
        assert top.truncation(row, 0.7) == 0.0


def test_a_top_capture_is_a_capture() -> None:
    whole = example_captures.example(6, 4096, "float16")
    top = keep_top(whole, 30)
    assert isinstance(top[2:4], TopCapture) and len(top[2:4]) == 2
    assert (len(top), top.vocab_size, whole.kept, top.kept) == (6, 4097, None, 30)
    assert top.contexts == whole.contexts and top[3].next_token == whole[3].next_token
    assert [one.position for one in top] == whole.positions.tolist()
    row = top[1:][2]
    assert np.isfinite(row.target_logits).sum() == 31
    assert np.exp(row.target_logits.astype(float)).sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(np.asarray(top.draft_logits)[3], row.draft_logits)
    with pytest.raises(IndexError):
        top.distributions(6)
    other = pickle.loads(pickle.dumps(top))
    with pytest.raises(ValueError, match="read-only"):
        other.target_logits.ids[0] = 0
    with pytest.raises(InvalidInputError, match=r"top_k must be at most 30, .*, got 31"):
        top.distributions(0, top_k=31)
    with pytest.raises(InvalidInputError, match="whole rows"):
        keep_top(top, 3)


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, in_memory: bool) -> None:
    top = keep_top(example_captures.example(6, 4096, "float16"), 7)
    save(top, tmp_path / "top")
    found = load(tmp_path / "top") if in_memory else in_file(tmp_path, top)
    assert isinstance(found, TopCapture)
    assert tuple(found.contexts) == top.contexts
    for part, wanted in ((found, top), (found[4:1:-1], top[4:1:-1])):
        for row in range(len(part)):
            for cut in ({}, {"temperature": 0.6, "top_k": 3}, {"top_p": 0.5}):
                np.testing.assert_array_equal(
                    part.distributions(row, **cut), wanted.distributions(row, **cut)
                )
                assert part.truncation(row, **cut) == wanted.truncation(row, **cut)
            assert part[row].context == wanted[row].context
    assert len(pickle.dumps(found[2:3])) < 20_000


def test_a_hundredth_of_the_size(tmp_path: Path) -> None:
    whole = generate(rows=4, vocab_size=128_256, dtype="float16")
    save(whole, tmp_path / "whole")
    save(keep_top(whole, 50), tmp_path / "top")
    assert 100 * (tmp_path / "top").stat().st_size < (tmp_path / "whole").stat().st_size


GOOD = {
    "ids": [[2, 0], [1, 3]],
    "logprobs": np.log([[0.6, 0.3], [0.5, 0.25]]),
    "rest": np.log([0.1, 0.25]),
    "vocab_size": 5,
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ids": [[2, 0], [1, 5]]}, r"row 1 must have .*, got a token id outside \[0, 5\)"),
        ({"ids": [[2, -1], [1, 3]]}, "row 0 must have .*, got a token id outside"),
        ({"ids": [[2, 0], [3, 3]]}, "row 1 must have .*, got a duplicate token"),
        ({"rest": np.log([0.1, 0.2])}, "row 1 must .*, got masses that do not add up"),
        ({"rest": [math.nan, 0.1]}, "row 0 must .*, got masses"),
        ({"logprobs": np.full((2, 2), math.nan)}, "row 0 must .*, got masses"),
        ({"logprobs": np.log([[0.6, 0.3], [0.7, 0.01]]), "rest": np.log([0.1, 0.29])}, "1 .*rest"),
        ({"ids": [[2.0, 0.0], [1.0, 3.0]]}, "ids must be integers, .*, got ids float64"),
        ({"ids": [2, 0]}, r"ids, .*, got \(2,\)"),
        ({"vocab_size": 1}, "must be 1 to V = 1, got 2"),
        ({"vocab_size": 2**40}, "vocab_size must be at most"),
        ({"vocab_size": "5"}, "vocab_size must be .*, got '5'"),
    ],
)
def test_rows_that_cannot_be_are_named(wrong: dict[str, Any], message: str) -> None:
    TopRows(**GOOD)
    with pytest.raises(InvalidInputError, match=message):
        TopRows(**{**GOOD, **wrong})


def test_a_row_that_cannot_be_is_named_when_it_is_met(tmp_path: Path) -> None:
    rows = TopRows(**GOOD)
    top = TopCapture(target_logits=rows, draft_logits=rows, synthetic=True, **LABELS)
    path = tmp_path / "mine"
    save(top, path)
    without_checks(path)
    content = bytearray(path.read_bytes())
    where = content.rindex(np.float32(math.log(0.25)).tobytes())  # the rest of the draft
    content[where : where + 4] = np.float32(0.0).tobytes()
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=r"mine.*row 1 must .*, got masses"):
        load(path)
    found = opened(path)
    assert np.isfinite(found.distributions(0)).all()
    with pytest.raises(InvalidInputError, match=r"row 0 \(row 1 of .*mine.*\) must .*, got masses"):
        found[1:].distributions(0)
    with pytest.raises(InvalidInputError, match=r"row 1 of .*mine.* must .*, got masses"):
        save(found, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_whole_rows_and_top_rows_do_not_mix() -> None:
    logits = np.zeros((2, 6), dtype=np.float32)
    with pytest.raises(InvalidInputError, match="must be TopRows"):
        TopCapture(target_logits=TopRows(**GOOD), draft_logits=logits, synthetic=True, **LABELS)
