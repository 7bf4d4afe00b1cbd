"""Overlaps by groups of rows, and the rows of lowest and highest overlap with texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otlp.data.captures import Capture
from otlp.distribution import entropy
from otlp.errors import InvalidInputError
from otlp.studies.figures import draw_overlap
from otlp.studies.overlap import MOST_PASSAGES, MOST_PLACES, measure_overlaps
from tests.example_captures import make


def texts(count: int, length: int, seed: int = 0) -> Capture:
    """Return texts of passages, each text one word longer than the previous one."""
    logits = np.random.default_rng(seed).normal(size=(2, count * length, 6)).astype(np.float32)
    contexts = [f"<{text}>" + " word" * row for text in range(count) for row in range(length)]
    positions = np.tile(np.arange(length) + 3, count)
    return make(*logits, contexts=tuple(contexts), positions=positions)


def test_groups_are_means_of_their_rows() -> None:
    capture = texts(9, 4)
    rows = range(len(capture))
    pairs = [capture.distributions(row) for row in rows]
    overlap = np.array([np.minimum(p, q).sum() for p, q in pairs])
    certain = np.array([entropy(p) for p, _ in pairs])
    found = measure_overlaps(capture, rows)
    np.testing.assert_allclose(found.overlap, overlap, rtol=1e-15)
    groups = list(found.groups())
    assert groups[0].rows == 36 and groups[0].overlap.mean == pytest.approx(overlap.mean())
    by = {name: [g for g in groups if g.by == name] for name in {g.by for g in groups}}
    for name, values in (("target entropy", certain), ("position", np.tile(np.arange(4), 9))):
        order = np.argsort(values, kind="stable")
        means = [overlap[part].mean() for part in np.split(order, 4)]
        assert [g.rows for g in by[name]] == [9] * 4
        assert [g.overlap.mean for g in by[name]] == pytest.approx(means)
    ranked = sorted(overlap.reshape(9, 4).mean(axis=1))
    shown = [*ranked[: MOST_PASSAGES // 2], *ranked[-MOST_PASSAGES // 2 :]]
    assert [g.overlap.mean for g in by["passage"]] == pytest.approx(shown)
    # The units are nine passages; a single passage has no interval.
    spread = overlap.reshape(9, 4).mean(axis=1).std(ddof=1) / 3.0
    half = groups[0].overlap.high - groups[0].overlap.mean
    assert half == pytest.approx(2.306004 * spread, rel=1e-6)
    assert all(np.isnan(g.overlap.low) for g in by["passage"])


def test_places_are_the_ends_with_their_texts() -> None:
    capture = texts(3, 6)
    found = measure_overlaps(capture, range(18))
    lowest, highest = found.places()
    order = np.argsort(found.overlap, kind="stable")
    assert [one.row for one in lowest] == order[:MOST_PLACES].tolist()
    assert [one.row for one in highest] == order[::-1][:MOST_PLACES].tolist()
    for one in (*lowest, *highest):
        assert one.text == capture.contexts[one.row]
        # the last row of a passage has no next row
        assert one.continuation == (" word" if one.row % 6 < 5 else "")


def test_rows_that_do_not_follow_say_nothing_of_each_other() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    apart = make(*logits, positions=np.array([3, 9, -1, -1]), contexts=("a", "a b", "c", "c d"))
    lowest, highest = measure_overlaps(apart, range(4)).places()
    assert [one.continuation for one in (*lowest, *highest)] == [""] * 4
    names = {group.by for group in measure_overlaps(apart, range(4)).groups()}
    assert "position" not in names  # unknown for some rows
    single = make(*logits, positions=np.full(4, -1))
    assert {g.by for g in measure_overlaps(single, range(4)).groups()} == {
        "all rows", "target entropy",
    }  # fmt: skip
    assert measure_overlaps(single, [2]).places() == ([], [])


def test_rows_that_are_all_alike_are_one_group() -> None:
    alike = make(np.zeros((6, 4), dtype=np.float32), positions=np.full(6, 5))
    groups = list(measure_overlaps(alike, range(6)).groups())
    assert [(g.by, g.rows) for g in groups] == [
        ("all rows", 6), ("target entropy", 6), ("position", 6),
    ]  # fmt: skip
    assert all(g.overlap.mean == pytest.approx(1.0) for g in groups)


def test_the_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[plot]")
    groups = list(measure_overlaps(texts(4, 3), range(12)).groups())
    draw_overlap(tmp_path / "o.svg", groups, "$x$ <b>")
    drawn = (tmp_path / "o.svg").read_text()
    assert "passage: &lt;" in drawn and "$x$ &lt;b&gt;" in drawn
    with pytest.raises(InvalidInputError, match="must not be empty"):
        draw_overlap(tmp_path / "none.svg", [])
    assert not (tmp_path / "none.svg").exists()
