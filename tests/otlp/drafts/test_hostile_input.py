"""Any input of a draft scheme is handled correctly or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.drafts import DraftScheme
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    SizeLimitError,
    TokenOutOfRangeError,
)

Q = [0.5, 0.3, 0.2]
TAKEN: dict[str, DraftScheme] = {
    "iid": otlp.IID(Q, 2),
    "independent": otlp.Independent([Q, Q[::-1]]),
    "without replacement": otlp.WithoutReplacement(Q, 2),
    "greedy": otlp.Greedy(Q, 2),
    "hub": otlp.Hub(Q),
    "explicit": otlp.Explicit([[0, 1], [2, 0]], [0.5, 0.5], 3),
}


@pytest.mark.parametrize("name", TAKEN)
def test_tuples_are_of_n_tokens_of_the_vocabulary(name: str) -> None:
    scheme = TAKEN[name]
    for ask in (scheme.probability, scheme.possible):
        for outside in ([0, -1], [0, 3], [0, 2**62]):
            with pytest.raises(TokenOutOfRangeError, match="outside the vocabulary"):
                ask(outside)
        for misshaped in ([0, 1, 2], [0], [], [[0, 1, 2]], [0.0, 1.0], 0):
            with pytest.raises(InvalidInputError, match="n = 2 integer token ids"):
                ask(misshaped)
    with pytest.raises(InvalidInputError, match="fewer tokens than the n = 2"):
        scheme.next_distribution([0, 1])


@pytest.mark.parametrize("size", [2**62, 2**63, 2**70])
def test_vocabularies_are_limited(size: int) -> None:
    with pytest.raises(SizeLimitError, match="limit"):
        otlp.Explicit([[0, 1]], [1.0], size)


@pytest.mark.parametrize("make", [otlp.IID, otlp.WithoutReplacement, otlp.Greedy])
def test_the_number_of_drafts_is_limited(make: Callable[..., DraftScheme]) -> None:
    with pytest.raises(InvalidInputError, match="at most 10,000"):
        make(Q, 2**63 - 1)
    most = otlp.IID(Q, 10_000)
    assert most.priority_marginals([0, 1, 2]).sum() == pytest.approx(1.0, abs=1e-10)
    assert otlp.solve(otlp.Problem(Q, most)).acceptance == pytest.approx(1.0, abs=1e-9)


def test_counts_beyond_all_floats_are_infinite() -> None:
    many = otlp.WithoutReplacement(np.full(3_000, 1 / 3_000), 1_500)
    assert many.tuple_count() == many.set_count()[0] == np.inf
    assert otlp.IID(np.full(100_000, 1e-5), 2_000).set_count() == (np.inf, np.inf)
    for listing in (many.enumerate_tuples, many.enumerate_sets):
        with pytest.raises(SizeLimitError):
            listing()
    with pytest.raises(SizeLimitError):
        _ = otlp.WithoutReplacement(np.full(200_000, 5e-6), 10_000).inclusion


@pytest.mark.parametrize(
    "make", [lambda n: otlp.IID([1.0], n), lambda n: otlp.Independent([[1]] * n)]
)
def test_more_places_than_an_array_has_axes(make: Callable[[int], DraftScheme]) -> None:
    assert make(70).enumerate_tuples().tokens.tolist() == [[0] * 70]


def test_complex_masked_and_text_are_refused_by_name() -> None:
    with pytest.raises(InvalidDistributionError, match="complex"):
        otlp.IID(np.array([0.5 + 0.5j, 0.5]), 2)
    with pytest.raises(InvalidDistributionError, match="masked"):
        otlp.Problem(np.ma.array([0.5, 0.5], mask=[False, True]), otlp.IID([0.5, 0.5], 2))
    with pytest.raises(InvalidDistributionError, match="real numbers"):
        otlp.softmax(["1", "2"])
    with pytest.raises(InvalidInputError, match="masked"):
        TAKEN["iid"].probability(np.ma.array([0, 1], mask=[False, True]))


@pytest.mark.parametrize("temperature", [None, "1", True, float("nan"), 0.0, -1.0, np.inf, 10**400])
def test_temperatures_are_positive_numbers(temperature: Any) -> None:
    with pytest.raises(InvalidInputError, match="temperature must be"):
        otlp.softmax([1.0, 2.0], temperature)


@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e300, np.float32(0.5), 1])
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_any_positive_temperature_is_taken(temperature: float) -> None:
    found = otlp.softmax([1.0, 2.0, -np.inf], temperature)
    assert found.sum() == pytest.approx(1.0, abs=1e-15) and found[2] == 0.0


def test_recursive_rejection_of_subnormal_masses_does_not_warn() -> None:
    rng = np.random.default_rng(2020938)
    sizes = np.array([5e-324, 1e-310, 1e-305, 1e-300, 1e-160, 1e-16, 0.1, 1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(25):
            p, q, other = (np.append(rng.choice(sizes, 4), 1.0) for _ in range(3))
            p, q, other = p / p.sum(), q / q.sum(), other / other.sum()
            schemes: list[DraftScheme] = [otlp.IID(q, 3), otlp.Independent([q, other])]
            if np.count_nonzero(q) >= 2:
                schemes += [otlp.WithoutReplacement(q, 2), otlp.Hub(q), otlp.Greedy(q, 2)]
            for scheme in schemes:
                solution = otlp.solve(otlp.Problem(p, scheme), "recursive-rejection")
                assert solution.marginal_error <= 1e-12
                scheme.inclusion, scheme.mass_within([0, 1]), scheme.mass_touching([0])
                for row in scheme.enumerate_tuples().tokens:
                    assert solution.plan.conditional(row).sum() == pytest.approx(1.0, abs=1e-12)
