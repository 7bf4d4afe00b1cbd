"""Published rules: the claims of their papers; test_agreement.py has every scheme."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.distribution import FloatArray
from otlp.errors import UnsupportedProblemError
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.greedy import GreedySolver
from otlp.solvers.hub import HubSolver
from otlp.solvers.k_seq import KSeq, least_division_factor
from otlp.solvers.naive import Naive
from otlp.solvers.recursive_rejection import RecursiveRejection
from otlp.solvers.speculative_sampling import SpeculativeSampling
from tests.examples import examples
from tests.instances import (
    brute_force_optimum,
    check_exact_acceptance,
    hub_problems,
    iid_problems,
    without_replacement_problems,
)

# SpecTr


@given(iid_problems())
@examples(30)
def test_k_seq_is_within_its_factor_of_the_optimum(problem):
    n = problem.n
    solution = KSeq().solve(problem)
    least = (1.0 - (1.0 - 1.0 / n) ** n) * brute_force_optimum(problem)
    passes = solution.details["some_draft_passes"]
    assert solution.acceptance >= passes - 1e-12 >= least - 2e-12


@given(iid_problems(), st.floats(1.0, 8.0))
@examples(25)
def test_k_seq_with_a_given_division_factor(problem, rho):
    least = least_division_factor(problem.target, problem.drafts.draft, problem.n)
    assert 1.0 <= least <= problem.n
    if rho < least * (1.0 - 1e-9):
        with pytest.raises(UnsupportedProblemError, match=r"less than rho\*"):
            KSeq(rho=rho).solve(problem)
    elif rho > least:
        solution = KSeq(rho=rho).solve(problem)
        check_exact_acceptance(solution)
        assert solution.details["rho"] == rho


def test_k_seq_below_the_least_factor_would_not_be_lossless():
    # Below rho*, the token with p < q is output too often.
    p, q, n = np.array([0.1, 0.6, 0.3]), np.array([0.5, 0.3, 0.2]), 2
    rho = 0.99 * least_division_factor(p, q, n)
    beta = np.minimum(q, p / rho).sum()
    put_out = np.minimum(q, p / rho) * (1.0 - (1.0 - beta) ** n) / beta
    assert (put_out > p + 1e-6).any()


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("b", [0.0, 0.1, 0.25, 0.6, 0.75, 1.0])
def test_bernoulli_pairs(n, b):
    # SpecTr, Eq. 10: the draft is Ber(0.25), the target Ber(b).
    a = 0.25
    problem = otlp.Problem([1.0 - b, b], otlp.IID([1.0 - a, a], n))
    alpha, _ = subset_selection(problem)
    expected = min(b, 1.0 - (1.0 - a) ** n) + min(1.0 - b, 1.0 - a**n)
    assert alpha == pytest.approx(expected, abs=1e-12)
    solution = KSeq().solve(problem)
    rho, passes = solution.details["rho"], solution.details["some_draft_passes"]
    beta = min(1.0 - a, (1.0 - b) / rho) + min(a, b / rho)
    assert passes == pytest.approx(1.0 - (1.0 - beta) ** n, abs=1e-12)
    assert passes == pytest.approx(rho * beta, abs=1e-12)  # Eq. 6
    assert passes - 1e-12 <= solution.acceptance <= alpha + 1e-12
    if b == a:
        assert solution.acceptance == pytest.approx(1.0, abs=1e-12)


def test_k_seq_falls_short_on_bernoulli_pairs():
    # SpecTr, Figure 4: K-SEQ is below the optimum for b = 0.1 and b = 0.75.
    for b in (0.1, 0.75):
        problem = otlp.Problem([1.0 - b, b], otlp.IID([0.75, 0.25], 4))
        short = subset_selection(problem)[0] - KSeq().solve(problem).details["some_draft_passes"]
        assert short > 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("r", [2, 3, 4, 6, 10])
def test_uniform_pairs(n, r):
    # SpecTr, Appendix B: the draft is U(d), the target U(d / r); K-SEQ is optimal.
    d = 120
    target = np.where(np.arange(d) < d // r, r / d, 0.0)
    problem = otlp.Problem(target, otlp.IID(np.full(d, 1.0 / d), n))
    expected = 1.0 - (1.0 - 1.0 / r) ** n
    solution = KSeq().solve(problem)
    assert subset_selection(problem)[0] == pytest.approx(expected, abs=1e-12)
    assert solution.acceptance == pytest.approx(expected, abs=1e-12)
    assert solution.details["some_draft_passes"] == pytest.approx(expected, abs=1e-12)
    factor = least_division_factor(target, problem.drafts.draft, n)  # type: ignore[attr-defined]
    assert factor == pytest.approx(r * expected, rel=1e-12)


# SpecHub

TARGET, DRAFT = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]


def test_spechub_worked_example():
    # SpecHub, Figures 4 and 5: transport cost 0.06 for RRSw, 0 for SpecHub.
    rejection = RecursiveRejection().solve(otlp.Problem(TARGET, otlp.WithoutReplacement(DRAFT, 2)))
    assert 1.0 - rejection.acceptance == pytest.approx(0.06, abs=1e-12)
    hub = HubSolver().solve(otlp.Problem(TARGET, otlp.Hub(DRAFT)))
    assert hub.acceptance == pytest.approx(1.0, abs=1e-12)
    # Figure 5: the pair (b, a) gives b always, (c, a) gives c; (a, b) gives b; (a, c) half each.
    conditionals = {(1, 0): [0, 1, 0], (2, 0): [0, 0, 1], (0, 1): [0, 1, 0], (0, 2): [0.5, 0, 0.5]}
    for pair, expected in conditionals.items():
        assert hub.plan.conditional(pair) == pytest.approx(expected, abs=1e-12)


def test_spechub_takes_the_hub_as_often_as_the_target():
    rng = np.random.default_rng(5)
    for _ in range(50):
        problem = otlp.Problem(rng.dirichlet(np.ones(8)), otlp.Hub(rng.dirichlet(np.ones(8))))
        hub = problem.drafts.hub  # type: ignore[attr-defined]
        accepted = HubSolver().solve(problem).plan.marginals().acceptance
        assert accepted[hub] == pytest.approx(problem.target[hub], abs=1e-13)


PAIRS = st.one_of(
    hub_problems(),
    iid_problems(min_n=2, max_n=2),
    without_replacement_problems(min_n=2, max_n=2),
)


@given(PAIRS)
@examples(25)
def test_the_first_draft_and_the_second_apart(problem):
    """Per token, against the sum over all pairs; the second is the rest of the acceptance."""
    rule = HubSolver() if isinstance(problem.drafts, otlp.Hub) else RecursiveRejection()
    plan = rule.solve(problem).plan
    tuples, table = plan.table()
    first, second = np.zeros((2, problem.vocab_size))
    for (one, two), mass, conditional in zip(tuples.tokens, tuples.mass, table, strict=True):
        first[one] += mass * conditional[one]
        second[two] += mass * conditional[two] * (one != two)
    np.testing.assert_allclose(plan.first_draft(), first, atol=1e-12)
    np.testing.assert_allclose(plan.marginals().acceptance, first + second, atol=1e-12)


@given(PAIRS)
@examples(25)
def test_two_drafts_are_a_flow_through_the_vocabulary(problem):
    """SpecHub, Appendix F: source, tokens and sink, and an arc from u to v for each pair (u, v)."""
    size, drafted = problem.vocab_size, problem.drafts.enumerate_tuples()
    pairs = np.zeros((size, size))
    np.add.at(pairs, tuple(drafted.tokens.T), drafted.mass)
    across = [(u, v, pairs[u, v]) for u, v in zip(*np.nonzero(pairs), strict=True) if u != v]
    arcs = [(size, u, pairs[u].sum()) for u in range(size)]
    arcs += [(u, size + 1, problem.target[u]) for u in range(size)] + across
    balance = np.zeros((size, len(arcs)))
    for column, (start, end, _) in enumerate(arcs):
        for node, sign in ((start, -1.0), (end, 1.0)):
            if node < size:
                balance[node, column] += sign
    leaving = np.array([start == size for start, *_ in arcs], dtype=float)
    most = scipy.optimize.linprog(
        -leaving, A_eq=balance, b_eq=np.zeros(size), bounds=[(0.0, upper) for *_, upper in arcs]
    )
    assert -most.fun == pytest.approx(brute_force_optimum(problem), abs=1e-7)


# SpecInfer


def sequential_acceptance(problem):
    """RRSw by recursion over all sequences, following Algorithm 1 of SpecHub."""

    def accept(p, q, left):
        taken = np.minimum(p, q)
        total = taken.sum()
        if left > 1:
            rest = np.maximum(p - q, 0.0)
            if rest.sum() > 0.0:
                rest = rest / rest.sum()
                for token in np.flatnonzero(q > taken):
                    fewer = q.copy()
                    fewer[token] = 0.0
                    rejected = q[token] - taken[token]
                    total += rejected * accept(rest, fewer / fewer.sum(), left - 1)
        return total

    return accept(problem.target, problem.drafts.draft, problem.n)


@given(without_replacement_problems())
@examples(25)
def test_rejection_without_replacement_is_the_algorithm(problem):
    acceptance = RecursiveRejection().solve(problem).acceptance
    assert acceptance == pytest.approx(sequential_acceptance(problem), abs=1e-11)


def test_rejection_without_replacement_of_larger_problems():
    rng = np.random.default_rng(2)
    for size, n in [(400, 2), (60, 3), (25, 4)]:
        q, p = rng.dirichlet(np.full(size, 0.3), size=2)
        q = np.where(q < 1e-9, 0.0, q)
        problem = otlp.Problem(p, otlp.WithoutReplacement(q / q.sum(), n))
        solution = RecursiveRejection().solve(problem)
        assert solution.marginal_error <= 1e-12
        assert solution.acceptance <= subset_selection(problem)[0]
        if n <= 3:
            expected = sequential_acceptance(problem)
            assert solution.acceptance == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("rule", [RecursiveRejection(), Naive()])
def test_equal_independent_drafts_are_iid_drafts(rule):
    p, q = np.random.default_rng(0).dirichlet(np.ones(30), size=2)
    iid = rule.solve(otlp.Problem(p, otlp.IID(q, 4)))
    same = rule.solve(otlp.Problem(p, otlp.Independent([q] * 4)))
    assert same.acceptance == pytest.approx(iid.acceptance, abs=1e-13)


# Bad input


def test_rules_refuse_schemes_for_which_they_are_not_valid():
    q = [0.5, 0.3, 0.2]
    refused = [
        (KSeq(), otlp.WithoutReplacement(q, 2), "for which the rule is not lossless"),
        (KSeq(), otlp.Independent([q, q[::-1]]), "for which the rule is not lossless"),
        (HubSolver(), otlp.Greedy(q, 2), "SpecHub's pairs"),
        (GreedySolver(), otlp.Hub(q), "the n - 1 most likely tokens"),
        (GreedySolver(), otlp.IID(q, 2), "the n - 1 most likely tokens"),
        (SpeculativeSampling(), otlp.IID(q, 2), "n must be 1, got n = 2"),
    ]
    for rule, drafts, reason in refused:
        with pytest.raises(UnsupportedProblemError, match=reason):
            rule.solve(otlp.Problem([0.2, 0.3, 0.5], drafts))


@pytest.mark.parametrize("n", [8, 64])
def test_a_time_limit_ends_the_estimate_with_an_interval_that_says_so(n: int) -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(128), size=2)
    problem = otlp.Problem(p, otlp.WithoutReplacement(q, n))
    whole = otlp.solve(problem, "recursive-rejection", samples=32_000 // n)
    hasty = otlp.solve(problem, "recursive-rejection", samples=32_000 // n, time_limit=1e-9)
    assert hasty.guarantee is otlp.Guarantee.LOSSLESS
    (low, high), (least, most) = hasty.acceptance_interval, whole.acceptance_interval
    assert high - low > most - least and low <= most and least <= high


def test_a_time_limit_turns_a_sum_over_sequences_into_an_estimate() -> None:
    class Twice(otlp.DraftScheme):
        n, vocab_size = 4, 8

        def next_distribution(self, drawn: object) -> FloatArray:
            return np.full(8, 0.125)

    problem = otlp.Problem(np.arange(1.0, 9.0) / 36.0, Twice())
    exact = otlp.solve(problem, "recursive-rejection")
    hasty = otlp.solve(problem, "recursive-rejection", time_limit=1e-9)
    assert "100 random sequences" in hasty.marginal_method
    low, high = hasty.acceptance_interval
    assert low <= exact.acceptance <= high
