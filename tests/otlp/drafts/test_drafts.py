"""IID and Explicit drafts: construction, listing and sampling; see also test_draft_schemes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.drafts.token_sets import merge_by_set
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    SizeLimitError,
    TokenOutOfRangeError,
)
from tests.examples import examples
from tests.instances import explicit_problems, iid_problems
from tests.otlp.drafts.scheme_checks import by_set


@examples(20)
@given(one=explicit_problems(), two=explicit_problems())
def test_listed_drafts_are_equal_where_their_tuples_are(
    one: otlp.Problem, two: otlp.Problem
) -> None:
    listed = one.drafts.enumerate_tuples()
    same = otlp.Explicit(listed.tokens[::-1], listed.mass[::-1], one.vocab_size)
    one.drafts.mean_draft, one.drafts.probability(listed.tokens)  # ignore derived attributes
    assert (same == one.drafts) == np.array_equal(same.enumerate_tuples().mass, listed.mass)
    again = pickle.loads(pickle.dumps(one.drafts))
    assert again == one.drafts and hash(again) == hash(one.drafts)
    other = two.drafts.enumerate_tuples()
    alike = one.vocab_size == two.vocab_size
    alike &= np.array_equal(listed.tokens, other.tokens)
    assert (one.drafts == two.drafts) == (alike and np.array_equal(listed.mass, other.mass))
    assert otlp.Explicit([[0, 1]], [1.0], 3) != otlp.Explicit([[1, 2]], [1.0], 3)


@examples(20)
@given(problem=iid_problems())
def test_listed_sets_are_the_merged_tuples_in_the_same_order(problem: otlp.Problem) -> None:
    tuples = problem.drafts.enumerate_tuples()
    listed, merged = by_set(problem.drafts.enumerate_sets()), by_set(merge_by_set(tuples))
    wanted: dict[tuple[int, ...], float] = {}
    for row, mass in zip(tuples.tokens.tolist(), tuples.mass.tolist(), strict=True):
        members = tuple(sorted(set(row)))
        wanted[members] = wanted.get(members, 0.0) + mass
    # A set may be omitted if all its tuples or its mass underflow.
    heavy = [[key for key, mass in sets.items() if mass > 1e-290] for sets in (listed, merged)]
    assert heavy[0] == heavy[1]
    assert set(heavy[0]) == {key for key, mass in wanted.items() if mass > 1e-290}
    for key in heavy[0]:
        assert listed[key] == pytest.approx(wanted[key], rel=1e-12)
        assert merged[key] == pytest.approx(wanted[key], rel=1e-12)


@examples(20)
@given(problem=explicit_problems())
def test_every_listed_set_is_found(problem: otlp.Problem) -> None:
    sets, tuples = problem.drafts.enumerate_sets(), problem.drafts.enumerate_tuples()
    found = np.array([sets.find(row) for row in tuples.tokens])
    assert (found >= 0).all()
    np.testing.assert_allclose(
        np.bincount(found, weights=tuples.mass, minlength=len(sets)), sets.mass, rtol=1e-12
    )
    for row, j in zip(tuples.tokens, found, strict=True):
        members = sets.members[sets.offsets[j] : sets.offsets[j + 1]]
        assert members.tolist() == sorted(set(row.tolist()))


def test_masses_of_tiny_sets_do_not_cancel() -> None:
    tiny = 1e-12
    sets = otlp.IID([1.0 - tiny, tiny], 4).enumerate_sets()
    # P(the set is {1}) is tiny^4, and P({0, 1}) is 1 - tiny^4 - (1 - tiny)^4.
    assert sets.mass[sets.find(np.array([1, 1, 1, 1]))] == pytest.approx(tiny**4, rel=1e-12)
    assert sets.mass[sets.find(np.array([0, 1, 0, 0]))] == pytest.approx(
        4 * tiny * (1 - tiny) ** 3 + 6 * tiny**2, rel=1e-12
    )


def test_many_drafts_of_few_tokens() -> None:
    drafts = otlp.IID([0.5, 0.3, 0.2], 64)
    sets = drafts.enumerate_sets()
    assert len(sets) == 7
    assert sets.mass.sum() == pytest.approx(1.0, abs=1e-13)
    assert drafts.tuple_count() == pytest.approx(3.0**64)
    with pytest.raises(SizeLimitError, match=r"3\^64 tuples"):
        drafts.enumerate_tuples()


def test_tuples_that_stand_twice_are_added_up() -> None:
    drafts = otlp.Explicit([[1, 0], [0, 1], [1, 0], [2, 2]], [0.25, 0.25, 0.5, 0.0])
    tuples = drafts.enumerate_tuples()
    assert tuples.tokens.tolist() == [[0, 1], [1, 0]]
    assert tuples.mass.tolist() == [0.25, 0.75]
    assert drafts.vocab_size == 3 and not drafts.support[2]
    assert drafts.probability([[1, 0], [2, 2]]).tolist() == [0.75, 0.0]


def test_top_k_of_both() -> None:
    iid = otlp.IID([0.1, 0.4, 0.4, 0.1], 2).top_k(3)
    np.testing.assert_allclose(iid.mean_draft, [1 / 9, 4 / 9, 4 / 9, 0.0], atol=1e-15)
    explicit = otlp.Explicit([[0], [1], [2]], [0.2, 0.5, 0.3]).top_k(2)
    assert explicit.enumerate_tuples().tokens.tolist() == [[1], [2]]
    np.testing.assert_allclose(explicit.enumerate_tuples().mass, [0.625, 0.375], atol=1e-15)
    for drafts in (iid, explicit):
        with pytest.raises(InvalidInputError, match=r"top-k size must be .*, got 0"):
            drafts.top_k(0)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_number_of_drafts(n: object) -> None:
    with pytest.raises(InvalidInputError, match=r"n must be an integer .*, got "):
        otlp.IID([0.5, 0.5], n)


@pytest.mark.parametrize(
    ("tuples", "probabilities", "error"),
    [
        ([], [], InvalidInputError),
        ([[]], [1.0], InvalidInputError),
        ([0, 1], [0.5, 0.5], InvalidInputError),
        ([[0.5]], [1.0], InvalidInputError),
        ([[0], [1]], [1.0], InvalidDistributionError),
        ([[0], [1]], [0.5, 0.4], InvalidDistributionError),
        ([[0], [1]], [1.5, -0.5], InvalidDistributionError),
        ([[0], [-1]], [0.5, 0.5], TokenOutOfRangeError),
        ([[0], [2]], [0.5, 0.5], TokenOutOfRangeError),
    ],
)
def test_bad_lists(tuples: object, probabilities: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        otlp.Explicit(tuples, probabilities, vocab_size=2)


@pytest.mark.parametrize("subset", [[0, 3], [-1], [[0]], [0.5], [True, False]])
def test_bad_subsets(subset: list[object]) -> None:
    for drafts in (otlp.IID([0.5, 0.3, 0.2], 2), otlp.Explicit([[0, 1]], [1.0], vocab_size=3)):
        for mass in (drafts.mass_within, drafts.mass_touching):
            with pytest.raises((InvalidInputError, TokenOutOfRangeError)):
                mass(subset)


def test_drafts_cannot_be_changed_afterwards() -> None:
    q = np.array([0.5, 0.5])
    drafts = otlp.IID(q, 2)
    q[0] = 0.0
    assert drafts.draft.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        drafts.draft[0] = 1.0
