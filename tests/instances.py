"""Test problems: Hypothesis strategies, named degenerate problems, and a checker.

`check_solution` uses only the conditionals of the plan, and enumerates all tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache, partial
from itertools import product

import numpy as np
from hypothesis import strategies as st

import otlp
from otlp.distribution import FloatArray, IntArray
from otlp.drafts.by_name import SchemeMaker
from otlp.solvers import SOLVERS, make_solver
from otlp.timing import Stopwatch

TOLERANCE = 1e-9


@st.composite
def distributions(draw: st.DrawFn, size: int) -> FloatArray:
    """A probability vector: integer weights (ties, zeros), Dirichlet, or extreme magnitudes."""
    kind = draw(st.sampled_from(["integers", "dirichlet", "magnitudes"]))
    if kind == "dirichlet":
        concentration = draw(st.sampled_from([0.05, 0.1, 0.3, 1.0, 3.0]))
        seed = draw(st.integers(0, 2**32 - 1))
        weights = np.random.default_rng(seed).dirichlet(np.full(size, concentration))
    else:
        entry = {
            "integers": st.integers(0, 4).map(float),
            "magnitudes": st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 1e-4, 0.1, 1.0, 3.0]),
        }[kind]
        weights = np.array(draw(st.lists(entry, min_size=size, max_size=size)))
    # An all-zero or NaN draw (Dirichlet underflow) becomes a point mass.
    if not weights.sum() > 0.0:
        weights = np.eye(size)[0]
    return weights / weights.sum()


@st.composite
def targets(draw: st.DrawFn, near: FloatArray) -> FloatArray:
    """A target for a draft law: unrelated, equal, tied in p/q, or permuted (other zeros)."""
    kind = draw(st.sampled_from(["unrelated", "unrelated", "equal", "tied", "permuted"]))
    if kind == "equal":
        return near
    if kind == "permuted":
        return near[draw(st.permutations(range(near.size)))]
    other = draw(distributions(near.size))
    if kind == "tied":
        factors = draw(
            st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=near.size, max_size=near.size)
        )
        scaled = near * np.array(factors)
        if scaled.sum() > 0.0:
            return scaled / scaled.sum()
    return other


@st.composite
def iid_problems(
    draw: st.DrawFn, min_vocab: int = 2, max_vocab: int = 5, min_n: int = 1, max_n: int = 3
) -> otlp.Problem:
    """A problem with i.i.d. drafts."""
    q = draw(distributions(draw(st.integers(min_vocab, max_vocab))))
    n = draw(st.integers(min_n, max_n))
    return otlp.Problem(draw(targets(q)), otlp.IID(q, n))


@st.composite
def explicit_problems(
    draw: st.DrawFn, min_vocab: int = 2, max_vocab: int = 5, min_n: int = 1, max_n: int = 3
) -> otlp.Problem:
    """A problem with up to twelve listed tuples, some repeated or of probability zero."""
    size = draw(st.integers(min_vocab, max_vocab))
    n = draw(st.integers(min_n, max_n))
    row = st.lists(st.integers(0, size - 1), min_size=n, max_size=n)
    tuples = draw(st.lists(row, min_size=1, max_size=12))
    drafts = otlp.Explicit(tuples, draw(distributions(len(tuples))), vocab_size=size)
    return otlp.Problem(draw(targets(drafts.mean_draft)), drafts)


@st.composite
def independent_problems(
    draw: st.DrawFn, min_vocab: int = 1, max_vocab: int = 5, min_n: int = 1, max_n: int = 3
) -> otlp.Problem:
    """A problem with independent drafts, related or not."""
    size, n = draw(st.integers(min_vocab, max_vocab)), draw(st.integers(min_n, max_n))
    first = draw(distributions(size))
    drafts = otlp.Independent([first] + [draw(targets(first)) for _ in range(n - 1)])
    return otlp.Problem(draw(targets(drafts.mean_draft)), drafts)


@st.composite
def _supported(draw: st.DrawFn, max_vocab: int, least: int) -> FloatArray:
    """A probability vector with a minimum support size."""
    q = draw(distributions(draw(st.integers(least, max(least, max_vocab)))))
    floor = draw(st.sampled_from([5e-324, 1e-300, 1e-9, 0.1]))
    missing = max(0, least - int(np.count_nonzero(q)))
    weights = q.copy()
    weights[np.flatnonzero(weights == 0.0)[:missing]] = floor
    return weights / weights.sum()


@st.composite
def _different(
    draw: st.DrawFn, make: SchemeMaker, max_vocab: int = 5, min_n: int = 1, max_n: int = 3
) -> otlp.Problem:
    """A problem with distinct drafts from one distribution."""
    n = draw(st.integers(min_n, max_n))
    drafts = make(draw(_supported(max_vocab, n)), n)
    return otlp.Problem(draw(targets(drafts.mean_draft)), drafts)


without_replacement_problems = partial(_different, otlp.WithoutReplacement)
greedy_problems = partial(_different, otlp.Greedy)
hub_problems = partial(_different, otlp.Hub, min_n=2, max_n=2)


MAKERS = {
    "iid": iid_problems,
    "explicit": explicit_problems,
    "independent": independent_problems,
    "without replacement": without_replacement_problems,
    "greedy": greedy_problems,
    "hub": hub_problems,
}
SCHEMES = {name: make() for name, make in MAKERS.items()}
"""A strategy of problems for each draft scheme."""
LARGER_SCHEMES = {
    name: make(max_vocab=6, max_n=2 if name == "hub" else 4) for name, make in MAKERS.items()
}
"""Strategies of larger problems, for slow tests."""


def problems() -> st.SearchStrategy[otlp.Problem]:
    """A problem of any draft scheme."""
    return st.one_of(*SCHEMES.values())


def _degenerate() -> dict[str, otlp.Problem]:
    tiny, subnormal = 1e-300, 5e-324
    cases: dict[str, tuple[list[float], list[float], int]] = {
        "one token": ([1.0], [1.0], 3),
        "one draft": ([0.1, 0.6, 0.3], [0.5, 0.3, 0.2], 1),
        "target equals draft": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], 3),
        "disjoint supports": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7], 2),
        "target partly outside the support": ([0.2, 0.5, 0.3], [0.6, 0.4, 0.0], 2),
        "point mass draft": ([0.2, 0.5, 0.3], [0.0, 1.0, 0.0], 3),
        "point mass target": ([0.0, 1.0, 0.0], [0.4, 0.2, 0.4], 3),
        "two point masses apart": ([1.0, 0.0], [0.0, 1.0], 2),
        "uniform": ([0.25] * 4, [0.25] * 4, 3),
        "ratios tied in pairs": ([0.1, 0.2, 0.3, 0.4], [0.2, 0.4, 1.2 / 7, 1.6 / 7], 3),
        "zero in both": ([0.5, 0.0, 0.5], [0.3, 0.0, 0.7], 2),
        "tiny draft mass": ([0.5, 0.5, 0.0], [tiny, 0.5, 0.5], 2),
        "tiny target mass": ([tiny, 0.5, 0.5], [0.5, 0.4, 0.1], 3),
        "subnormal masses": ([subnormal, 1.0, 0.0], [0.5, subnormal, 0.5], 2),
        "ten orders of magnitude": ([1e-10, 1e-5, 0.99999], [0.99999, 1e-10, 1e-5], 3),
        "more drafts than tokens": ([0.1, 0.9], [0.9, 0.1], 8),
    }  # fmt: skip
    named = {name: otlp.Problem(p, otlp.IID(q, n)) for name, (p, q, n) in cases.items()}
    uniform, skewed = [0.25] * 4, [1.0 - 1e-12, 1e-12, 0.0, 0.0]
    others: dict[str, tuple[list[float], otlp.DraftScheme]] = {
        "explicit: one tuple": ([0.2, 0.3, 0.5], otlp.Explicit([[2, 1]], [1.0], vocab_size=3)),
        "explicit: a token never drafted": (
            [0.2, 0.3, 0.5],
            otlp.Explicit([[0, 0], [0, 1], [1, 0]], [0.5, 0.25, 0.25], vocab_size=3),
        ),
        "explicit: every order of the same set": (
            [0.5, 0.25, 0.25], otlp.Explicit([[0, 1], [1, 0]], [0.4, 0.6], vocab_size=3),
        ),
        "independent: three that differ": (
            uniform, otlp.Independent([skewed, [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, tiny, 1.0]]),
        ),
        "greedy: ties": ([0.1, 0.2, 0.3, 0.4], otlp.Greedy(uniform, 3)),
        "hub: nearly a point mass": (uniform, otlp.Hub(skewed)),
        **{
            f"without replacement: {name}": (uniform, otlp.WithoutReplacement(q, n))
            for name, q, n in (
                ("as many drafts as tokens", [0.7, 0.1, 0.1, 0.1], 4),
                ("one token has nearly all mass", [1.0 - 1e-12, 4e-13, 3e-13, 3e-13], 3),
                ("subnormal masses", [subnormal, 1e-310, 0.25, 0.75], 3),
                ("a subnormal second token", [1.0, subnormal, 1e-320, 0.0], 2),
                ("always the same two tokens, one subnormal", [1.0, subnormal, 0.0, 0.0], 2),
            )
        },
    }  # fmt: skip
    return named | {name: otlp.Problem(p, drafts) for name, (p, drafts) in others.items()}


DEGENERATE = _degenerate()
"""Valid edge cases by name; all can be enumerated."""
IID_CASES = {name: case for name, case in DEGENERATE.items() if isinstance(case.drafts, otlp.IID)}


P, Q = [0.1, 0.6, 0.25, 0.05], [0.4, 0.3, 0.3, 0.0]
SMALL = {
    name: otlp.Problem(P, drafts)
    for name, drafts in {
        "iid": otlp.IID(Q, 3),
        "independent": otlp.Independent([Q, P]),
        "without replacement": otlp.WithoutReplacement(Q, 2),
        "greedy": otlp.Greedy(Q, 2),
        "hub": otlp.Hub(Q),
        "explicit": otlp.Explicit([[0, 1], [2, 2], [1, 0]], [0.5, 0.25, 0.25], 4),
        "one draft": otlp.IID(Q, 1),
    }.items()
}
"""A plain problem for each draft scheme."""


def large(k: int, n: int, concentration: float = 0.3) -> otlp.Problem:
    """Return a problem with n i.i.d. drafts over k tokens."""
    p, q = np.random.default_rng(k).dirichlet(np.full(k, concentration), 2)
    return otlp.Problem(p, otlp.IID(q, n))


def supported(
    problems: Mapping[str, otlp.Problem], solvers: Iterable[str] = SOLVERS
) -> list[tuple[str, str]]:
    """Return names of problems and of the solvers that support each problem."""
    return [
        (name, solver)
        for name, problem in problems.items()
        for solver in solvers
        if make_solver(solver).supports(problem)
    ]


@cache
def exact_solvers() -> frozenset[str]:
    """Return the names of solvers that claim optimality; they must prove it for all plans."""
    claims = (
        (solver, make_solver(solver).answer(SMALL[name], Stopwatch()).claim)
        for name, solver in supported(SMALL)
    )
    return frozenset(solver for solver, claim in claims if claim is otlp.Guarantee.OPTIMAL)


def brute_force_optimum(problem: otlp.Problem) -> float:
    """Return alpha*, the minimum dual value over all 2^V subsets (Global Resolution, Eq. 4).

    The dual value is p(H) plus the mass of the tuples that are not contained in H.
    """
    subsets = np.array([*product([False, True], repeat=problem.vocab_size)])
    tuples = problem.drafts.enumerate_tuples()
    leaving = ~subsets[:, tuples.tokens].all(axis=2)
    return min(1.0, float((subsets @ problem.target + leaving @ tuples.mass).min()))


def enumerated(plan: otlp.Plan, tolerance: float = TOLERANCE) -> tuple[FloatArray, FloatArray]:
    """Return the laws of the output and of the accepted output; check that slices sum to 1."""
    tuples = plan.problem.drafts.enumerate_tuples()
    conditionals = np.array([plan.conditional(row) for row in tuples.tokens])
    assert conditionals.shape == (len(tuples.mass), plan.problem.vocab_size)
    assert conditionals.min() >= 0.0
    np.testing.assert_allclose(conditionals.sum(axis=1), 1.0, rtol=0.0, atol=tolerance)
    joint = tuples.mass[:, None] * conditionals
    drafted = np.zeros(joint.shape, dtype=bool)
    np.put_along_axis(drafted, tuples.tokens, True, axis=1)
    return joint.sum(axis=0), np.where(drafted, joint, 0.0).sum(axis=0)


def check_solution(solution: otlp.Solution, tolerance: float = TOLERANCE) -> None:
    """Enumerate the plan and check its conditionals, output distribution and acceptance."""
    assert solution.plan is not None, str(solution)
    problem = solution.plan.problem
    output, accepted = enumerated(solution.plan, tolerance)
    assert np.abs(output - problem.target).sum() <= tolerance
    assert abs(accepted.sum() - solution.acceptance) <= tolerance
    assert solution.upper_bound >= accepted.sum() - tolerance
    if solution.subset is not None:
        assert solution.upper_bound == problem.dual_value(solution.subset)
    np.testing.assert_allclose(
        solution.plan.marginals().acceptance, accepted, rtol=0.0, atol=tolerance
    )


def check_exact_acceptance(solution: otlp.Solution) -> None:
    """Check a solved solution to rounding error."""
    assert solution.status is otlp.Status.SOLVED
    check_solution(solution, 1e-12)


def exact_best(counts: IntArray, shares: FloatArray) -> list[Fraction]:
    """Return the exact probability that each group has the best of all scores.

    Group j has ``counts[j]`` scores, each with mass ``shares[j, c]`` spread uniformly on cell c.
    The integrals are those of polynomials, computed in rational numbers.
    """
    best, below = [[Fraction(0)] * len(counts) for _ in range(2)]
    for rise in ([Fraction(share) for share in column] for column in shares.T):
        for j in range(len(counts)):
            density = [rise[j] * int(counts[j])]  # coefficients by power
            for other, count in enumerate(counts):
                for _ in range(count - (other == j)):
                    up = [Fraction(0), *(rise[other] * term for term in density)]
                    density = [
                        below[other] * term + more
                        for term, more in zip([*density, Fraction(0)], up, strict=True)
                    ]
            best[j] += sum(term / (power + 1) for power, term in enumerate(density))
        below = [start + step for start, step in zip(below, rise, strict=True)]
    return best


def language_like(vocab, n, k=None, seed=0):
    rng = np.random.default_rng(seed)
    logits = -1.5 * np.log(np.arange(1, vocab + 1)) + rng.standard_normal(vocab)
    draft = otlp.softmax(logits + 0.7 * rng.standard_normal(vocab))
    drafts = otlp.IID(draft, n)
    return otlp.Problem(otlp.softmax(logits), drafts.top_k(k) if k else drafts)
