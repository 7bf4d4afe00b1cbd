"""The choice of a design, its statistics in files, and refused input."""

from __future__ import annotations

import json
import math
from math import nan
from typing import Any

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Sampling,
    iid_paths,
    top_tree,
    tree_shape,
)
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp_lab.design import (
    Candidate,
    CostCurve,
    Statistics,
    WrittenText,
    best_static_tree,
    design,
    gather_statistics,
    tournament_profile,
)
from otlp_lab.design.mixed_nodes import mixed_shape
from tests.otlp.decode.tabular_rounds import LEAF, NAMES

ROW = np.full((4, 3), 1.0 / 3.0)
TEXT = WrittenText(np.zeros(4, dtype=int), ROW, ROW)


def statistics(*candidates: Candidate) -> Statistics:
    made = candidates or (
        Candidate("paths", (1, 2), 2, 2, 1.5, 0.1),
        Candidate("paths", (2, 2), 4, 2, 1.8, 0.1),
        Candidate("mixed", (((1, 1), (0, 1)),), 4, 2, 1.7, 0.1),
        Candidate("mixed-shape", (((LEAF,), ()),), 1, 1, 1.2, 0.1),
        Candidate("adaptive-depth", (2, 3, 0.1), 3.5, 3, 1.75, 0.1),
    )
    return Statistics("small", "large", Sampling(0.5), 2, 100, made)


def test_the_choice_keeps_to_the_budget_and_the_costs() -> None:
    given = statistics()
    assert design(given, 10) == given.candidates[1]
    assert design(given, 3) == given.candidates[0]
    same = Candidate("mixed", (((0, 2), (0, 1)),), 4, 2, 1.8 + 1e-13, 0.1)
    assert design(statistics(*given.candidates, same), 4) == given.candidates[1]
    assert design(given, 4, families=["mixed"]).verification == ALGORITHMS["tournament"]
    assert design(given, 4).verification == ALGORITHMS["two-slice"]
    cheap_nodes = CostCurve((1.0, 1.0, 1.0, 1.0, 1.0))
    assert cheap_nodes.tokens_per_second(design(given, costs=cheap_nodes)) == pytest.approx(1.8)
    dear = CostCurve((1.0, 2.0, 3.0, 4.0, 5.0), 0.1)
    found = design(given, costs=dear, families=["paths"])
    assert found == given.candidates[0]
    assert dear.tokens_per_second(found) == pytest.approx(1.5 / 3.2)


def test_statistics_go_through_json_and_know_their_pair(tmp_path: Any) -> None:
    given = statistics(
        Candidate("mixed-shape", (((LEAF,), (((LEAF,), ()),)),), 3, 2, 1.2, 0.1),
        *statistics().candidates[:3],
    )
    (tmp_path / "s.json").write_text(given.to_json(), encoding="utf-8")
    assert Statistics.read(tmp_path / "s.json") == given
    assert given.candidates[0].drafting.length == 2
    given.check_models("large", "small", Sampling(0.5))
    for other, words in (
        (("huge", "small", Sampling(0.5)), "small and .*, not of target huge with draft small"),
        (("large", "tiny", Sampling(0.5)), "not of target large with draft tiny"),
        (("large", "small", Sampling()), r"temperature=0\.5.*, not of .*temperature=1\.0"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            given.check_models(*other)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "otlp-acceptance-4"}', "[" * 100_000,
             statistics().to_json().replace('"small"', "[[3]]").replace('"paths"', '"path"'),
             statistics().to_json().replace("1.5", "null"),
             statistics().to_json().replace('"temperature": 0.5', '"temperature": -1')]
)  # fmt: skip
def test_files_of_something_else(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Statistics.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        *({"parameters": wrong} for wrong in ([], [1], [1, 2, 3], [1, "a"], [0, 2], [[1], 2], 3)),
        *({"depth": wrong} for wrong in (0, 1.5, None, "2")),
        *({"error": wrong} for wrong in (-0.1, nan, math.inf, None)),
        *({"draft_temperature": -1}, {"family": []}),
    ],
    ids=str,
)
def test_candidates_that_are_none(change: dict[str, Any]) -> None:
    found = json.loads(statistics().to_json())
    found["candidates"][0] |= change
    with pytest.raises(InvalidInputError, match=next(iter(change)).replace("draft_", "")):
        Statistics.from_json(json.dumps(found))


@pytest.mark.parametrize(
    "make",
    [
        lambda: design(statistics(), 0),
        lambda: design(statistics(), -1),
        lambda: design(statistics()),
        lambda: design(statistics(), 0.5),
        lambda: design(statistics(), 1, families=["paths"]),
        lambda: design(statistics(), 4, families=["forests"]),
        lambda: design(statistics(), 4, families=[]),
        lambda: design("statistics", 4),
        lambda: design(statistics(), costs=[1.0, 2.0]),
        lambda: CostCurve(()),
        lambda: CostCurve((1.0,)),
        lambda: CostCurve((1.0, nan, 2.0)),
        lambda: CostCurve((1.0, None, 2.0)),
        lambda: CostCurve((1.0, -2.0)),
        lambda: CostCurve((1.0, 0.0)),
        lambda: CostCurve((1.0, 2.0), -0.1),
        lambda: CostCurve(3.0),
        lambda: Statistics("d", "t", Sampling(), 0, 0, ()),
        lambda: gather_statistics([], **NAMES),
        lambda: gather_statistics([TEXT], **NAMES, budgets=(), length=2),
        lambda: gather_statistics([TEXT], **NAMES, budgets=(0,), length=2),
        lambda: gather_statistics([TEXT], **NAMES, length=4),  # deeper than the text
        lambda: tournament_profile(TEXT, iid_paths(1, 3), 2),
        lambda: tournament_profile(TEXT, top_tree(3, 2), 2),
        lambda: WrittenText([0, 1], ROW, ROW),
        lambda: WrittenText([0, 0, 0, 3], ROW, ROW),
        lambda: WrittenText([0] * 4, np.eye(4, 3) * 0.0, ROW),
        lambda: best_static_tree([0.5], 0, 1),
        lambda: best_static_tree([1.5], 2, 1),
        lambda: mixed_shape(((), ())),
        lambda: mixed_shape(3),
        lambda: mixed_shape(((3,), ())),
    ],
)
def test_bad_input(make: Any) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_siblings_must_be_independent() -> None:
    with pytest.raises(UnsupportedProblemError, match="without-replacement"):
        tournament_profile(TEXT, tree_shape([-1, 0, 0]), 2)
