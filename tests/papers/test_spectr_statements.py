"""SpecTr: its statements; p of the paper is the draft, and q the target."""

from itertools import chain, combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.errors import InvalidInputError
from otlp.solvers.k_seq import KSeq
from otlp.studies.information_bound import information_bound
from tests.examples import examples
from tests.instances import distributions, targets


def least_bound(problem):
    tokens = range(problem.vocab_size)
    subsets = chain.from_iterable(combinations(tokens, size) for size in range(len(tokens) + 1))
    return min(information_bound(problem, list(subset)) for subset in subsets)


@given(st.data(), st.integers(2, 4), st.integers(1, 3))
@examples(25)
def test_lemma_3(data, size, n):
    draft = data.draw(distributions(size))
    problem = otlp.Problem(data.draw(targets(draft)), otlp.IID(draft, n))
    least, optimum = least_bound(problem), otlp.optimal_acceptance(problem)
    assert optimum <= least + 1e-12
    assert optimum >= (1 - (1 - 1 / n) ** n) * least - 1e-12
    k_seq = otlp.solve(problem, "k-seq").acceptance
    assert k_seq >= (1 - (1 - 1 / n) ** n) * least - 1e-9


@given(st.data(), st.integers(3, 4))
@examples(15)
def test_every_scheme_is_bounded(data, size):
    draft = (data.draw(distributions(size)) + 0.01) / (1 + 0.01 * size)
    for scheme in (
        otlp.WithoutReplacement(draft, 2),
        otlp.Independent([draft, data.draw(targets(draft))]),
    ):
        problem = otlp.Problem(data.draw(targets(draft)), scheme)
        assert otlp.optimal_acceptance(problem) <= least_bound(problem) + 1e-9


@pytest.mark.parametrize("b", [0.1, 0.25, 0.75, 1.0])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_it_is_tight_for_the_papers_examples(b, k):
    """Appendix B of the paper states this for its Bernoulli and uniform pairs."""
    problem = otlp.Problem([1 - b, b], otlp.IID([0.75, 0.25], k))
    assert least_bound(problem) == pytest.approx(otlp.optimal_acceptance(problem), abs=1e-12)


@pytest.mark.parametrize("r", [1, 2, 3, 6])
def test_it_is_tight_for_uniform_pairs(r):
    target = np.repeat([r / 6, 0.0], [6 // r, 6 - 6 // r])
    problem = otlp.Problem(target, otlp.IID(np.full(6, 1 / 6), 3))
    assert least_bound(problem) == pytest.approx(1 - (1 - 1 / r) ** 3, abs=1e-12)


def test_what_is_no_subset_is_refused():
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 2))
    with pytest.raises(InvalidInputError, match="subset"):
        information_bound(problem, [0.5])


@given(st.data(), st.integers(2, 5))
@examples(20)
def test_lemma_1(data, size):
    """More drafts are never worse; in the limit the whole support of the draft is accepted."""
    draft = data.draw(distributions(size))
    draft = np.where(draft > 0.01, draft, 0.0) / draft[draft > 0.01].sum()
    target = data.draw(targets(draft))
    found = [
        otlp.optimal_acceptance(otlp.Problem(target, otlp.IID(draft, n)))
        for n in (1, 2, 3, 4, 8, 10_000)
    ]
    assert all(a <= b + 1e-12 for a, b in pairwise(found))
    assert found[-1] == pytest.approx(target[draft > 0.0].sum(), abs=1e-9)


def beta(target, draft, rho):
    return np.minimum(draft, target / rho).sum()


@given(st.data(), st.integers(2, 5), st.integers(2, 6))
@examples(25)
def test_lemma_4_and_theorem_1(data, size, n):
    """f decreases, its root is where the lemma states, and k-Seq attains 1 - 1/e with this rho."""
    draft = data.draw(distributions(size))
    target = data.draw(targets(draft))
    if not 1e-6 < np.abs(target - draft).sum() / 2 < 1 - 1e-6:
        return

    def f(rho):
        share = beta(target, draft, rho)
        return 1 - (1 - share) ** n - rho * share

    grid = [f(rho) for rho in np.linspace(1.0, n + 1.0, 50)]
    assert all(a >= b - 1e-12 for a, b in pairwise(grid))
    problem = otlp.Problem(target, otlp.IID(draft, n))
    solution = otlp.solve(problem, "k-seq")
    rho = solution.details["rho"]
    assert abs(f(rho)) < 1e-9
    with np.errstate(all="ignore"):
        most = np.nanmax(np.where(target > 0.0, target / draft, np.nan))
    assert 1.0 <= rho <= min(n, most) + 1e-6
    assert solution.acceptance >= (1 - np.exp(-1)) * otlp.optimal_acceptance(problem) - 1e-9
    # any larger rho also gives a valid plan
    larger = KSeq(rho=min(rho * 1.5, float(n))).solve(problem)
    assert larger.guarantee >= otlp.Guarantee.LOSSLESS
