"""The exact solver for i.i.d. drafts, and its plan by scores."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import otlp
from otlp.auditing.gtest import g_test
from otlp.certificate import Answer, certify
from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError, ZeroProbabilityError
from otlp.numerics import ratio_bins
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee, Solution, Status
from otlp.solvers.martingale import Martingale
from otlp.solvers.score_plan import HIGH, LOW, ScorePlan, _cell
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import IID_CASES, brute_force_optimum, check_solution, exact_best, iid_problems

FALSE_ALARM = 1e-4
"""False-alarm rate of each sampled test; the seeds are fixed."""


def solve(problem: otlp.Problem) -> tuple[Solution, ScorePlan]:
    solution = Martingale().solve(problem)
    assert isinstance(solution.plan, ScorePlan)
    return solution, solution.plan


def check_certificate(solution: Solution) -> None:
    assert solution.guarantee is Guarantee.OPTIMAL, str(solution)
    assert solution.status is Status.SOLVED
    assert abs(solution.gap) < 1e-12, str(solution)
    assert solution.marginal_error < 1e-10, str(solution)


def shares(plan: ScorePlan, tokens: IntArray) -> FloatArray:
    """Return the share of the law of each token (row) in each cell (column)."""
    pairs, running = plan.laws.pairs, plan.laws.shares
    share = np.zeros((tokens.size, len(plan.laws.groups)))
    group, factors = plan.token_laws()
    for row, (g, factor) in enumerate(zip(group[tokens], factors[tokens], strict=True)):
        share[row, g] = 1.0
        for own, other in ((LOW, HIGH), (HIGH, LOW)):
            mine = np.flatnonzero(pairs[own] == g)
            steps = factor * np.diff(running[own, mine], prepend=0.0)
            share[row, pairs[other, mine]] += steps
            share[row, g] -= steps.sum()
    return share


def enumerated_law(plan: ScorePlan) -> FloatArray:
    """Return the law of the selected token, from the selection given each tuple."""
    tuples = plan.problem.drafts.enumerate_tuples()
    law = np.zeros(plan.problem.vocab_size)
    for row, mass in zip(tuples.tokens, tuples.mass, strict=True):
        tokens, masses = plan.selection(row)
        law[tokens] += mass * masses
    return law


def check_exactly(problem: otlp.Problem) -> None:
    """Check everything that enumeration of the tuples can check."""
    solution, plan = solve(problem)
    check_certificate(solution)
    assert solution.acceptance == pytest.approx(subset_selection(problem)[0], abs=1e-12)
    assert solution.acceptance == pytest.approx(brute_force_optimum(problem), abs=1e-12)
    check_solution(solution, 1e-12)
    realised = plan.realised_selection_distribution()
    np.testing.assert_allclose(enumerated_law(plan), realised, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(plan.selection_distribution, realised, rtol=0.0, atol=1e-13)


@examples(50)
@given(problem=iid_problems())
def test_optimal_and_lossless_on_every_tuple(problem: otlp.Problem) -> None:
    check_exactly(problem)


@examples(40)
@given(problem=iid_problems(max_vocab=7), bits=st.integers(0, 3))
def test_bins_that_tokens_share(problem: otlp.Problem, bits: int) -> None:
    """Bins from an octave to an eighth of an octave wide, checked by enumeration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ratio_bins, "SPARED_BITS", problem.vocab_size.bit_length() - bits)
        check_exactly(problem)


@examples(8)
@given(problem=iid_problems(max_vocab=3, min_n=5, max_n=8))
def test_optimal_and_lossless_with_many_drafts(problem: otlp.Problem) -> None:
    check_exactly(problem)


@pytest.mark.parametrize("name", IID_CASES)
def test_degenerate_problems(name: str) -> None:
    check_exactly(IID_CASES[name])


@examples(40)
@given(problem=iid_problems(max_vocab=12, max_n=9))
def test_the_score_of_a_random_draft_is_uniform(problem: otlp.Problem) -> None:
    """The mass of each cell equals its length; swaps are few, ordered and at most all."""
    _, plan = solve(problem)
    (low, high), drafts = plan.laws.pairs, problem.drafts
    assert isinstance(drafts, IID)
    tokens = np.flatnonzero(drafts.draft)
    q, share = drafts.draft[tokens], shares(plan, tokens)
    mass = sum_by(plan.token_laws()[0][tokens].astype(np.int64), q, len(plan.laws.groups))
    np.testing.assert_allclose(q @ share, mass, rtol=0.0, atol=1e-15)
    assert share.min() >= -1e-12
    assert low.size < mass.size
    assert (low < high).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()


def drafted(q: FloatArray, n: int, size: int, seed: int) -> IntArray:
    return IID(q, n).sample(np.random.default_rng(seed), size)


def uneven(size: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(size, 0.5)), rng.dirichlet(np.full(size, 0.7))


@pytest.mark.parametrize("seed", range(3))
def test_drawn_scores_are_uniform(seed: int) -> None:
    p, q = uneven(8, seed)
    _, plan = solve(otlp.Problem(p, IID(q, 3)))
    tokens = drafted(q, 1, 40_000, seed).ravel()
    uniform, places = np.random.default_rng(seed).random((tokens.size, 2)).T
    cells = np.array(
        [_cell(p[i] / q[i], u, plan._laws) for i, u in zip(tokens, uniform, strict=True)]
    )
    length = sum_by(plan.token_laws()[0].astype(np.int64), q, len(plan.laws.groups))
    scores = np.cumsum(length)[cells] - (1.0 - places) * length[cells]
    counts = np.bincount((scores * 64).astype(np.int64), minlength=64)
    assert not g_test(counts, np.full(64, 1 / 64), FALSE_ALARM).rejected


@pytest.mark.parametrize(("size", "n", "seed"), [(3, 2, 0), (6, 3, 1), (6, 5, 2), (40, 8, 3)])
def test_draws_follow_the_slices(size: int, n: int, seed: int) -> None:
    """`select` follows `selection`, and `sample` follows `conditional`."""
    p, q = uneven(size, seed)
    _, plan = solve(otlp.Problem(p, IID(q, n)))
    rng = np.random.default_rng(seed)
    for row in drafted(q, n, 2, seed):
        tokens, masses = plan.selection(row)
        law = np.zeros(size)
        law[tokens] = masses / masses.sum()
        selected = [plan.select(row, rng) for _ in range(4_000)]
        counts = np.bincount(selected, minlength=size)
        assert not g_test(counts, law, FALSE_ALARM).rejected
        verified = [plan.sample(row, rng) for _ in range(4_000)]
        counts = np.bincount(verified, minlength=size)
        assert not g_test(counts, plan.conditional(row), FALSE_ALARM).rejected


@pytest.mark.parametrize(("size", "n"), [(5, 4), (5, 7), (4, 20), (3, 33)])
def test_slices_are_exact(size: int, n: int) -> None:
    p, q = uneven(size, n)
    _, plan = solve(otlp.Problem(p, IID(q, n)))
    for row in drafted(q, n, 2, n):
        tokens, masses = plan.selection(row)
        drawn, counts = np.unique(row, return_counts=True)
        reference = exact_best(counts, shares(plan, drawn))
        np.testing.assert_allclose(masses, np.array(reference, float), rtol=0.0, atol=1e-13)
        assert tokens.tolist() == sorted(set(row.tolist()))


def hard_pairs(size: int, n: int) -> dict[str, Callable[[], tuple[FloatArray, FloatArray]]]:
    """Pairs p, q at the limits of double precision, each up to a factor."""
    rng = np.random.default_rng(size)
    q = rng.dirichlet(np.ones(size))
    half = np.arange(size) < size // 2
    point = np.eye(1, size, size // 3)[0]
    subnormal = np.where(half, 5e-324 * rng.integers(0, 5, size), q)
    reach = np.diff(np.append(0.0, np.cumsum(q) / q.sum()) ** n)  # every prefix is tight
    return {
        "unrelated": lambda: (rng.dirichlet(np.ones(size)), q),
        "sparse": lambda: (rng.gamma(0.01, size=size), rng.gamma(0.01, size=size)),
        "equal": lambda: (q, q),
        "equal to rounding": lambda: (q * (1 + 1e-15 * rng.standard_normal(size)), q),
        "nearly equal": lambda: (q * (1 + 1e-12 * rng.standard_normal(size)), q),
        "uniform": lambda: (np.ones(size), np.ones(size)),
        "tied": lambda: (q * rng.integers(0, 4, size), q),
        "whole numbers": lambda: (rng.integers(0, 4, size), rng.integers(0, 4, size)),
        "point target": lambda: (point, q),
        "point draft": lambda: (q, point),
        "points apart": lambda: (point, point[::-1]),
        "disjoint": lambda: (q * half, q * ~half),
        "target outside the support": lambda: (q, q * half),
        "draft outside the target's support": lambda: (q * half, q),
        "600 orders of magnitude": lambda: (
            q * 10.0 ** rng.uniform(-300, 0, size),
            q[::-1] * 10.0 ** rng.uniform(-300, 0, size),
        ),
        "subnormal draft": lambda: (q[::-1], subnormal),
        "subnormal target": lambda: (subnormal, q[::-1]),
        "Zipf": lambda: (
            1.0 / (1 + rng.permutation(size)) ** 1.1,
            1.0 / np.arange(1, size + 1) ** 1.1,
        ),
        "one bin": lambda: (q * (1 + 2.0**-30 * rng.random(size)), q),
        "ratios that differ in the last bit": lambda: (
            np.where(rng.random(size) < 0.5, q, np.nextafter(q, 1.0)),
            q,
        ),
        "every prefix tight": lambda: (reach, q),
        "every prefix tight, reversed": lambda: (reach[::-1], q),
    }


def normalised(p: FloatArray, q: FloatArray, n: int) -> otlp.Problem:
    return otlp.Problem(p / p.sum(), IID(q / q.sum(), n))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 64])
def test_never_fails(n: int) -> None:
    rng = np.random.default_rng(n)
    for name, pair in hard_pairs(1_000, n).items():
        problem = normalised(*pair(), n)
        solution, plan = solve(problem)
        check_certificate(solution)
        assert solution.acceptance == pytest.approx(subset_selection(problem)[0], abs=1e-12), name
        row = problem.drafts.sample(rng)
        assert plan.problem.target[plan.sample(row, rng)] > 0.0, name
        law = plan.conditional(row)
        assert law.min() >= 0.0, name
        assert law.sum() == pytest.approx(1.0, abs=1e-12), name


@pytest.mark.parametrize(
    "name",
    [
        "unrelated",
        "nearly equal",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("whole numbers", "Zipf")),
    ],
)
def test_a_million_tokens_and_64_drafts(name: str) -> None:
    solution, plan = solve(normalised(*hard_pairs(1_000_000, 64)[name](), 64))
    check_certificate(solution)
    row = plan.problem.drafts.sample(np.random.default_rng(0))
    assert plan.selection(row)[1].sum() == pytest.approx(1.0, abs=1e-12)


def test_a_plan_is_small() -> None:
    """At most 1 MB in addition to the problem, also after its certificate, by pickle size."""
    rng = np.random.default_rng(0)
    draft = rng.normal(0.0, 3.0, 2**18)
    target = 0.8 * draft + rng.normal(size=draft.size)
    for n in (2, 64):
        problem = otlp.Problem(otlp.softmax(target), IID(otlp.softmax(draft), n))
        solution, plan = solve(problem)
        check_certificate(solution)
        assert len(pickle.dumps(plan)) - len(pickle.dumps(problem)) < 2**20
        held = [value for value in vars(plan).values() if isinstance(value, np.ndarray)]
        assert not [array.size for array in held if array.size >= draft.size]


def test_tuples_whose_probability_underflows() -> None:
    """Every token stays possible, and the plan verifies the tuple."""
    size, n = 1_000_000, 64
    problem = otlp.Problem(np.full(size, 1e-6), IID(np.full(size, 1e-6), n))
    row = problem.drafts.sample(np.random.default_rng(0))
    assert problem.drafts.probability(row) == 0.0
    _, plan = solve(problem)
    assert plan.sample(row, np.random.default_rng(0)) in row


def test_impossible_tuples_are_refused() -> None:
    _, plan = solve(otlp.Problem([0.5, 0.2, 0.3], IID([0.5, 0.5, 0.0], 2)))
    with pytest.raises(ZeroProbabilityError, match=r"\[2, 0\]"):
        plan.sample([2, 0], np.random.default_rng(0))


def test_the_verifier_finds_wrong_scores() -> None:
    """A share with an error of one tenth changes the marginals seen by the verifier."""
    p, q = uneven(6, 0)
    problem = otlp.Problem(p, IID(q, 3))
    solution, plan = solve(problem)
    broken = ScorePlan(problem, plan.laws._replace(shares=0.9 * plan.laws.shares))
    np.testing.assert_allclose(
        broken.realised_selection_distribution(), enumerated_law(broken), rtol=0.0, atol=1e-12
    )
    checked = certify(
        problem, "broken", Answer(broken, Guarantee.OPTIMAL, solution.subset), Stopwatch()
    )
    assert checked.status is Status.CERTIFICATE_FAILED
    assert checked.guarantee is Guarantee.APPROXIMATE


def test_one_draft_is_speculative_sampling() -> None:
    p, q = uneven(7, 5)
    solution, plan = solve(otlp.Problem(p, IID(q, 1)))
    assert solution.acceptance == pytest.approx(np.minimum(p, q).sum(), abs=1e-14)
    for token in range(7):
        law = plan.conditional([token])
        assert law[token] >= min(1.0, p[token] / q[token]) - 1e-14


def test_other_schemes_are_refused() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0], vocab_size=2))
    with pytest.raises(
        UnsupportedProblemError, match=r"martingale.*be i\.i\.d\., .*; use orderings"
    ):
        Martingale().solve(problem)
    _, plan = solve(otlp.Problem([0.5, 0.5], IID([0.5, 0.5], 2)))
    with pytest.raises(UnsupportedProblemError, match=r"i\.i\.d\. drafts"):
        ScorePlan(problem, plan.laws)


@st.composite
def tiny_problems(draw: st.DrawFn) -> otlp.Problem:
    """Probabilities from 1 down to subnormal numbers, and differences in the last digit."""
    size, n = draw(st.integers(2, 5)), draw(st.integers(2, 3))
    exponents = st.lists(st.floats(-323.0, 0.0), min_size=size, max_size=size)
    pair = [10.0 ** np.array(draw(exponents)) for _ in range(2)]
    pair[0][draw(st.integers(0, size - 1))] = pair[1][draw(st.integers(0, size - 1))] = 1.0
    if draw(st.booleans()):
        pair[0] = pair[1] * (1.0 + 2.0**-52 * np.arange(size))
    return normalised(pair[0], pair[1], n)


FROM_THE_ISSUE = normalised(
    np.array([8e-30, 2e-34, 1.0, 3.5e-16]), np.array([6e-52, 5e-198, 1.0, 2e-261]), 2
)


@example(problem=FROM_THE_ISSUE)
@examples(50)
@given(problem=tiny_problems())
@pytest.mark.filterwarnings("error")
def test_draws_follow_the_conditional_however_rare_the_tuple(problem: otlp.Problem) -> None:
    """A token drawn 8 times in 8 must not have a tiny probability or probability 0."""
    _, plan = solve(problem)
    rng = np.random.default_rng(0)
    drafts = problem.drafts
    assert isinstance(drafts, IID)
    for row in product(np.flatnonzero(drafts.draft), repeat=problem.n):
        tuple_ = np.array(row)
        tokens, masses = plan.selection(tuple_)
        assert masses.sum() == pytest.approx(1.0, abs=1e-12)
        chance = dict(zip(tokens.tolist(), masses.tolist(), strict=True))
        draws = [plan.select(tuple_, rng) for _ in range(8)]
        for token in set(draws):
            # False-alarm rate: at most 8 draws at 1e-5 per tuple; the seed is fixed.
            assert chance[token] > 1e-5 or draws.count(token) < 2, (row, chance, draws)
            assert chance[token] > 0.0, (row, chance, draws)


@pytest.mark.parametrize("n", [1_000, 10_000])
def test_thousands_of_drafts(n: int) -> None:
    solution = Martingale().solve(otlp.Problem([0.5, 0.3, 0.2], IID([0.2, 0.3, 0.5], n)))
    assert solution.guarantee is Guarantee.OPTIMAL
