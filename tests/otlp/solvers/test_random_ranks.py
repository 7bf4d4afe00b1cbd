"""Random ranks: the optimum for drafts without replacement, by swaps in one ordering."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp import captures
from otlp.certificate import Answer, certify
from otlp.drafts.without_replacement import NO_GROUPS
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.solution import Guarantee, Status
from otlp.solvers import rank_items
from otlp.solvers.orderings import Orderings
from otlp.solvers.random_ranks import RandomRanks
from otlp.solvers.rank_plan import RankPlan, _by_name, _steps
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import enumerated, without_replacement_problems


def correlated(size, seed, scale=3.0):
    rng = np.random.default_rng(seed)
    one, two = rng.standard_normal((2, size))
    mixed = 0.95 * one + 0.3 * two
    return otlp.softmax(scale * one), otlp.softmax(scale * mixed)


@given(without_replacement_problems(min_n=2), st.integers(0, 2**32 - 1), st.integers(1, 4))
@examples(20)
def test_chances_of_any_ranks_by_enumeration(problem, seed, rounds):
    drafts, n = problem.drafts, problem.n
    rng = np.random.default_rng(seed)
    tokens = np.concatenate([rng.permutation(drafts.vocab_size) for _ in range(rounds)])
    shares = rng.dirichlet(np.ones(rounds), size=drafts.vocab_size).T.copy()
    shares = shares[np.repeat(np.arange(rounds), drafts.vocab_size), tokens]
    sets, wanted = drafts.enumerate_sets(), np.zeros(tokens.size)
    for row, mass in enumerate(sets.mass):
        members = sets.members[sets.offsets[row] : sets.offsets[row + 1]]
        below = np.zeros(drafts.vocab_size)
        for step, token in enumerate(tokens):
            if token in members:
                wanted[step] += mass * np.prod(below[members[members != token]])
            below[token] += shares[step]
    assert drafts._race.chances(n, tokens, shares, NO_GROUPS)[0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("size", "n"), [(17, 16), (20, 18), (33, 32), (50, 48), (66, 64)])
def test_nearly_all_tokens_are_drafted(size: int, n: int) -> None:
    """All sets of a uniform draft have equal mass; the probabilities are positive sums."""
    rng = np.random.default_rng(n)
    tokens, drafts = rng.permutation(size), otlp.WithoutReplacement(np.full(size, 1 / size), n)
    tokens = np.concatenate([tokens, rng.permutation(size)])
    first = rng.random(size)
    shares = np.where(np.arange(2 * size) < size, first[tokens], 1.0 - first[tokens])
    below, wanted = np.zeros(size), np.zeros(2 * size)
    for step, token in enumerate(tokens):
        sums = np.eye(1, n)[0]
        for other in np.delete(below, token):
            sums[1:] += other * sums[:-1]
        wanted[step] = sums[-1] / comb(size, n)
        below[token] += shares[step]
    assert drafts._race.chances(n, tokens, shares, NO_GROUPS)[0] == pytest.approx(wanted, abs=1e-13)
    assert drafts.inclusion == pytest.approx(np.full(size, n / size), abs=1e-13)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_larger_problems_are_certified(n, seed):
    target, draft = correlated(500, seed)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, n))
    solution = otlp.solve(problem)
    assert solution.solver == "random-ranks"
    assert solution.status is Status.SOLVED and solution.guarantee is Guarantee.OPTIMAL
    assert -1e-12 <= solution.gap <= 1e-6
    assert solution.marginal_error <= 1e-12
    assert "corrections" in solution.details
    assert solution.upper_bound == pytest.approx(
        Orderings(gap=1e-3).solve(problem).upper_bound, abs=1e-9
    )


def test_a_finer_gap_is_reached():
    target, draft = correlated(1000, 4, scale=2.0)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 4))
    rough, fine = (RandomRanks(gap=gap).solve(problem) for gap in (1e-3, 1e-10))
    assert fine.gap <= 1e-10 < rough.gap <= 1e-3
    assert fine.details["corrections"] > rough.details["corrections"]


def test_off_the_bounds_few_corrections_reach_the_optimum():
    p, q = np.random.default_rng(3).dirichlet(np.ones(600), 2)
    solution = RandomRanks().solve(otlp.Problem(p, otlp.WithoutReplacement(q, 4)))
    assert solution.upper_bound < 0.9
    assert solution.details["corrections"] <= 2 and abs(solution.gap) <= 1e-9


@pytest.mark.parametrize(("size", "seed", "top"), [(300, 1, 3 / 7), (300, 1, 1.5), (8192, 0, 9.5)])
def test_few_tokens_with_most_of_the_draft_do_not_stall_the_swaps(size, seed, top):
    p, q = np.random.default_rng(seed).dirichlet(np.full(size, 0.5), 2)
    p[:3] += [0.9, 0.1, 1.0]
    q[:3] += np.array([1.0, 0.7, 0.3]) * top
    problem = otlp.Problem(p / p.sum(), otlp.WithoutReplacement(q / q.sum(), 4))
    solution = RandomRanks().solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL and "orderings" not in solution.details


@pytest.mark.parametrize("seed", range(6))
def test_heavy_tokens_among_light_ones_swap_at_most_twice(seed):
    rng = np.random.default_rng(seed)
    p, q = np.exp(rng.standard_normal((2, 8192))) / np.arange(1, 8193)
    problem = otlp.Problem(p / p.sum(), otlp.WithoutReplacement(q / q.sum(), 4))
    solution = RandomRanks().solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL and solution.marginal_error <= 1e-13
    assert solution.details["corrections"] <= 2


@pytest.mark.parametrize(
    ("temperature", "n", "row", "most"),
    [(0.6, 3, 115, 20), (0.6, 4, 5, 12), (1.0, 4, 4, 20), (0.6, 4, 23, 80)],
)
def test_two_likely_tokens_that_the_target_weighs_otherwise(temperature, n, row, most):
    target, draft = captures.builtin().distributions(row=row, temperature=temperature)
    solution = RandomRanks().solve(otlp.Problem(target, otlp.WithoutReplacement(draft, n)))
    assert solution.guarantee is Guarantee.OPTIMAL and solution.marginal_error <= 1e-12
    assert "orderings" not in solution.details and solution.details["corrections"] <= most


@pytest.mark.parametrize("corrections", [1, 3])
def test_lossless_wherever_it_stops(corrections):
    target, draft = correlated(6, 5)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    solution = RandomRanks(gap=0.0, max_iterations=corrections).solve(problem)
    assert solution.status is Status.ITERATION_LIMIT and "lossless" in solution.message
    assert enumerated(solution.plan, 1e-12)[0] == pytest.approx(target, abs=1e-13)


def test_where_swaps_stall_they_start_anew_with_another_race():
    # all tokens are drafted, so one of them can always be accepted
    target, draft = [0.05, 0.14, 0.04, 0.77], [0.05, 0.05, 0.04, 0.86]
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 4))
    solution = RandomRanks().solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL and solution.acceptance == pytest.approx(1.0)
    assert "orderings" not in solution.details


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        np.random.default_rng(136).dirichlet(np.full(5, 0.3), 2),
        # Such a rare token needs no correction.
        ([0.0, 1.0, 1e-300], [0.5, 0.5, 5e-301]),
        ([5e-309, 1.0, 5e-309], [0.5, 0.5, 2e-309]),
    ],
    ids=["drawn", "rare", "subnormal"],
)
def test_where_all_races_stall_orderings_start_anew(target, draft):
    solution = RandomRanks().solve(otlp.Problem(target, otlp.WithoutReplacement(draft, 3)))
    assert solution.guarantee is Guarantee.OPTIMAL and solution.gap <= 1e-6
    assert "orderings" in solution.details


def test_ranks_are_what_they_were_made_from():
    tokens, shares = np.array([2, 0, 2, 1]), np.array([0.25, 1.0, 0.75, 1.0])
    again = _steps(*_by_name(tokens, shares, 4))
    assert again[0].tolist() == tokens.tolist() and again[1].tolist() == shares.tolist()


@pytest.mark.parametrize(
    ("tokens", "shares"),
    [([0, 1, 0, 2, 0], [0.8, 1.0, -0.5, 1.0, 0.7]), ([0, 1], [1.0, 1.0])],
    ids=["a share below zero", "a drafted token without a rank"],
)
def test_the_verifier_refuses_ranks_that_are_no_law(tokens: list[int], shares: list[float]) -> None:
    target, draft = correlated(3, 0)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 2))
    plan = RankPlan(problem, target, np.arange(3), np.array(tokens), np.array(shares))
    with pytest.raises(InvalidInputError, match="probabilities that sum to one"):
        certify(problem, "ranks", Answer(plan), Stopwatch())


def test_samples_follow_the_slices():
    target, draft = correlated(8, 2)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    plan = RandomRanks(gap=1e-12, max_iterations=5).solve(problem).plan
    assert isinstance(plan, RankPlan)
    rng, tokens = np.random.default_rng(3), np.array([2, 5, 7])
    seen = np.bincount(plan.select_many(np.tile(tokens, (40_000, 1)), rng), minlength=8)[tokens]
    found, law = plan.selection(tokens)
    assert found.tolist() == tokens.tolist() and law.sum() == pytest.approx(1.0, abs=1e-14)
    # five standard deviations
    assert (np.abs(seen / 40_000 - law) <= 5.0 * np.sqrt(law / 40_000) + 1e-12).all()


def test_other_drafts_and_options_are_refused():
    target, draft = correlated(8, 2)
    for drafts in (otlp.IID(draft, 2), otlp.WithoutReplacement(draft, 1)):
        with pytest.raises(UnsupportedProblemError, match="use orderings"):
            RandomRanks().solve(otlp.Problem(target, drafts))
        with pytest.raises(UnsupportedProblemError, match="without replacement"):
            RandomRanks().prepare(otlp.Problem(target, drafts))
    with pytest.raises(UnsupportedProblemError, match="without replacement"):
        RankPlan(
            otlp.Problem(target, otlp.IID(draft, 2)), draft, np.arange(8), np.arange(8), np.ones(8)
        )


def grouped_rows(size, seed, kind):
    """Return rows of many unlikely tokens, which random ranks groups."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(size))
    draft = target * np.exp(rng.standard_normal(size))
    if kind == "a token with nearly all mass":
        draft[7] = 1e6 * draft.sum()
    elif kind == "masses of 1e-300":
        draft[::3] = 1e-300 * rng.random(draft[::3].size)
        target[1::5] = 1e-300
    elif kind == "equal drafts":
        draft[:] = 1.0
    elif kind == "two ratios":
        draft = np.where(rng.random(size) < 0.05, 30.0, 0.1) * target
    elif kind == "no drafts of half the tokens":
        draft[::2] = 0.0
    return target / target.sum(), draft / draft.sum()


@pytest.mark.parametrize("n", [2, 4, 7])
@pytest.mark.parametrize(
    "kind",
    [
        "noise",
        "a token with nearly all mass",
        "masses of 1e-300",
        "equal drafts",
        "two ratios",
        "no drafts of half the tokens",
    ],
)
def test_many_unlikely_tokens(kind: str, n: int) -> None:
    target, draft = grouped_rows(60_000, n, kind)
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, n))
    solution = RandomRanks().solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL
    assert -1e-12 <= solution.gap <= 1e-6 and solution.marginal_error <= 1e-12
    assert solution.plan is not None
    assert solution.plan.marginals().acceptance.sum() == solution.acceptance
    if kind in ("noise", "two ratios"):
        assert isinstance(solution.plan, RankPlan)
        assert solution.plan.names.max() >= problem.vocab_size  # there are groups
        assert solution.plan.ranks.size < 20_000


def test_groups_and_single_tokens_have_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = grouped_rows(40_000, 0, "noise")
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    grouped = RandomRanks().solve(problem)
    monkeypatch.setattr(rank_items, "group_by_ratio", lambda target, *_: np.arange(target.size))
    single = RandomRanks().solve(problem)
    assert grouped.plan is not None and single.plan is not None
    assert grouped.details["ranks"] < 20_000 < 40_000 <= single.details["ranks"]
    assert grouped.acceptance == pytest.approx(single.acceptance, abs=1e-6)
    assert grouped.upper_bound == pytest.approx(single.upper_bound, abs=1e-6)


def test_samples_of_groups_follow_their_law():
    target, draft = grouped_rows(40_000, 1, "two ratios")
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    plan = RandomRanks().solve(problem).plan
    assert isinstance(plan, RankPlan)
    rng, size = np.random.default_rng(0), 40_000
    for row in problem.drafts.sample(rng, 2):
        found, law = plan.selection(row)
        both = (
            plan.select_many(np.tile(row, (size, 1)), rng),
            np.array([plan.select(row, rng) for _ in range(size // 10)]),
        )
        for drawn in both:
            seen = np.array([(drawn == token).mean() for token in found])
            assert (np.abs(seen - law) <= 5.0 * np.sqrt(law / drawn.size) + 1e-12).all()
    # The law of one draw of all drafts, in parts of the vocabulary.
    drafted = problem.drafts.sample(rng, size)
    drawn = plan.select_many(drafted, rng)
    for part in range(4):
        law = plan.realised_selection_distribution()[part::4].sum()
        assert (drawn % 4 == part).mean() == pytest.approx(law, abs=5.0 * np.sqrt(law / size))


def test_groups_of_few_rare_tokens_by_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan with groups of a small problem is lossless and optimal."""
    monkeypatch.setattr(
        rank_items,
        "group_by_ratio",
        lambda target, draft, groupable: np.where(
            groupable & (draft > 0.0),
            target.size + (target > draft).astype(np.int64),
            np.arange(target.size),
        ),
    )
    rng = np.random.default_rng(2)
    for _ in range(4):
        rare, ratio = rng.random(8) * 1e-5, np.repeat([0.5, 2.0], 4)
        target = np.append(rng.dirichlet(np.ones(5)), ratio * rare)
        draft = np.append(rng.dirichlet(np.ones(5)), rare)
        problem = otlp.Problem(
            target / target.sum(), otlp.WithoutReplacement(draft / draft.sum(), 3)
        )
        solution = RandomRanks().solve(problem)
        assert solution.guarantee is Guarantee.OPTIMAL
        assert enumerated(solution.plan, 1e-12)[0] == pytest.approx(problem.target, abs=1e-13)
