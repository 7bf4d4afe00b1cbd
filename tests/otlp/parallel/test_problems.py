"""Problems built on demand equal problems built directly, for any split."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.errors import InvalidInputError, OTLPError, RowOutOfRangeError
from otlp.parallel.problems import CaptureProblems, RowProblems, SyntheticProblems

CAPTURE = otlp.captures.builtin()
ROWS = 6
MADE_UP = otlp.synthetic.generate(ROWS, 1000, seed=3)
MANY = otlp.synthetic.generate(100, 1000)


def same(one: otlp.Problem, other: otlp.Problem) -> bool:
    return one == other and np.array_equal(one.drafts.mean_draft, other.drafts.mean_draft)


def by_hand(capture: otlp.captures.Capture, row: int) -> otlp.Problem:
    target, draft = capture.distributions(row, 0.7, 0.9, top_k=20, top_p=0.999)
    return otlp.Problem(target, otlp.WithoutReplacement(draft, 2))


SETTINGS: dict[str, Any] = {
    "n": 2, "drafts": "without-replacement", "temperature": 0.7, "draft_temperature": 0.9,
    "top_k": 20, "top_p": 0.999,
}  # fmt: skip
KINDS: list[tuple[otlp.captures.Capture, RowProblems]] = [
    (CAPTURE[:ROWS], CaptureProblems(CAPTURE[:ROWS], **SETTINGS)),
    (MADE_UP, CaptureProblems(MADE_UP, **SETTINGS)),
    (MADE_UP, SyntheticProblems(ROWS, 1000, 3, **SETTINGS)),
]


@pytest.mark.parametrize(("capture", "problems"), KINDS)
def test_each_problem_is_that_of_its_row(
    capture: otlp.captures.Capture, problems: RowProblems
) -> None:
    assert len(problems) == ROWS
    for row, problem in enumerate(problems):
        assert same(problem, by_hand(capture, row))
    for row in (0, 2, -1):
        assert same(problems[row], by_hand(capture, row % ROWS))


@pytest.mark.parametrize(("capture", "problems"), KINDS)
@pytest.mark.parametrize("part", [slice(1, 4), slice(None, None, -2), slice(4, 1), slice(5, 99)])
def test_parts_and_pickles_have_the_same_problems(
    capture: otlp.captures.Capture, problems: RowProblems, part: slice
) -> None:
    kept = problems[part]
    back = pickle.loads(pickle.dumps(kept))
    twice = pickle.loads(pickle.dumps(back[:2]))
    rows = range(ROWS)[part]
    assert len(kept) == len(back) == len(rows)
    for place, row in enumerate(rows):
        assert same(kept[place], by_hand(capture, row))
        assert same(back[place], by_hand(capture, row))
    assert all(same(a, b) for a, b in zip(twice, kept, strict=False))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("rows", [range(3, 5), [90, 3], (0, 99)])
def test_a_pickle_holds_its_own_rows_alone(rows: Any, whole: bool) -> None:
    capture = MANY if whole else CAPTURE
    row_bytes = 2 * 1000 * 4 if whole else 16 * CAPTURE.kept + 24
    back = pickle.loads(pickle.dumps(CaptureProblems(capture, rows, n=4)))
    assert len(pickle.dumps(back)) < 3 * row_bytes
    for place, row in enumerate(rows):
        assert same(back[place], CaptureProblems(capture, n=4)[row])
    assert len(pickle.dumps(SyntheticProblems(10**6, 1000, n=4)[17:])) < 1000


def test_chosen_rows_come_in_their_order() -> None:
    problems = CaptureProblems(CAPTURE, [5, 1, 1], **SETTINGS)
    for problem, row in zip([*problems, problems[1:][0]], (5, 1, 1, 1), strict=True):
        assert same(problem, by_hand(CAPTURE, row))


def test_a_scheme_may_be_a_function() -> None:
    problems = CaptureProblems(CAPTURE, n=3, drafts=lambda q, n: otlp.Greedy(q, n))
    assert isinstance(problems[0].drafts, otlp.Greedy)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (CaptureProblems, {"capture": "x"}, "capture must be .*, got str"),
        (CaptureProblems, {"rows": 3}, "rows must be .*, got int"),
        (CaptureProblems, {"rows": [0.5]}, "a row must be .*, got 0.5"),
        (CaptureProblems, {"n": 0}, "n must be .*, got 0"),
        (CaptureProblems, {"drafts": "iids"}, "drafts must be .*, got 'iids'"),
        (CaptureProblems, {"drafts": []}, r"drafts must be .*, got \[\]"),
        (CaptureProblems, {"temperature": 0.0}, "temperature must be .*, got 0"),
        (CaptureProblems, {"draft_temperature": -1.0}, "temperature must be .*, got -1"),
        (CaptureProblems, {"top_k": 0}, "top-k"),
        (CaptureProblems, {"top_p": 1.5}, "top-p"),
        (SyntheticProblems, {"rows": -1}, "rows must be .*, got -1"),
        (SyntheticProblems, {"rows": range(-2, 3)}, r"no number below 0, got range\(-2, 3\)"),
        (SyntheticProblems, {"vocab_size": 10}, "vocab_size must be .*, got 10"),
        (SyntheticProblems, {"seed": "x"}, "seed must be .*, got 'x'"),
    ],
)
def test_bad_arguments_are_refused_before_any_row(
    kind: Any, arguments: dict[str, Any], message: str
) -> None:
    given = {"capture": CAPTURE} if kind is CaptureProblems else {"rows": 2, "vocab_size": 1000}
    with pytest.raises(InvalidInputError, match=message):
        kind(**{"n": 2, **given, **arguments})


@pytest.mark.parametrize("rows", [[len(CAPTURE)], range(5, 10**6), [-1]])
def test_rows_that_are_not_there_are_named(rows: Any) -> None:
    with pytest.raises(OTLPError, match="row"):
        CaptureProblems(CAPTURE, rows, n=2)
    with pytest.raises((RowOutOfRangeError, IndexError)):
        CaptureProblems(CAPTURE, n=2)[10**9]
