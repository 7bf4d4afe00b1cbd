"""The verifier checks claims: wrong claims are lowered, and bounds are recomputed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp import Guarantee, Status
from otlp.certificate import GAP_TOLERANCE, LOSSLESS_TOLERANCE, Answer, certify
from otlp.distribution import Mask
from otlp.drafts import DraftTuples
from otlp.plan import Marginals, Plan, TablePlan
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import brute_force_optimum, problems
from tests.own_plans import PROBLEM, Boaster, OwnPlan, ignore_drafts, keep_first, table
from tests.processes import run_python

OPTIMUM = 0.85


def optimal_plan() -> tuple[Plan, Mask]:
    solution = otlp.solve(PROBLEM, "max-flow")
    assert solution.plan is not None and solution.subset is not None
    return solution.plan, solution.subset


def verdict(plan: Plan | None, **claims: object) -> otlp.Solution:
    return certify(PROBLEM, "claimant", Answer(plan, **claims), Stopwatch())


def test_a_right_claim_is_confirmed() -> None:
    plan, subset = optimal_plan()
    solution = verdict(plan, claim=Guarantee.OPTIMAL, subset=subset)
    assert solution.guarantee is Guarantee.OPTIMAL and solution.status is Status.SOLVED
    assert solution.acceptance == pytest.approx(OPTIMUM, abs=1e-15)
    assert solution.message == ""


def test_a_plan_that_is_not_optimal_cannot_claim_to_be() -> None:
    _, subset = optimal_plan()
    solution = verdict(ignore_drafts(), claim=Guarantee.OPTIMAL, subset=subset)
    assert solution.guarantee is Guarantee.LOSSLESS
    assert solution.status is Status.CERTIFICATE_FAILED
    assert "claimed OPTIMAL, proved LOSSLESS" in solution.message
    # With the correct claim the same plan is certified.
    honest = verdict(ignore_drafts(), claim=Guarantee.LOSSLESS, subset=subset)
    assert honest.guarantee is Guarantee.LOSSLESS and honest.status is Status.SOLVED


def test_an_optimal_plan_with_a_bad_proof_is_lossless_only() -> None:
    plan, _ = optimal_plan()
    solution = verdict(plan, claim=Guarantee.OPTIMAL, subset=np.array([False, True, False]))
    assert solution.guarantee is Guarantee.LOSSLESS
    assert solution.status is Status.CERTIFICATE_FAILED


@pytest.mark.parametrize("claim", [None, Guarantee.OPTIMAL])
@examples(20)
@given(problem=problems())
def test_a_plan_without_a_subset_is_proved_by_the_verifier(
    claim: Guarantee | None, problem: otlp.Problem
) -> None:
    """The simplest own solver returns `Answer(plan)` only."""
    plan = otlp.solve(problem, "max-flow").plan
    solution = certify(problem, "own", Answer(plan, claim), Stopwatch())
    assert solution.status is Status.SOLVED and solution.message == ""
    assert solution.guarantee is Guarantee.OPTIMAL
    assert solution.subset is not None and solution.subset.shape == (problem.vocab_size,)
    worse = certify(problem, "own", Answer(ignore_drafts(problem)), Stopwatch())
    assert worse.status is Status.SOLVED and worse.guarantee >= Guarantee.LOSSLESS
    assert worse.upper_bound >= brute_force_optimum(problem) - 1e-12


def test_no_claim_is_no_lie() -> None:
    """A lossy plan without a claim is reported as lossy, without asking for a bug report."""
    solution = verdict(keep_first())
    assert solution.guarantee is Guarantee.APPROXIMATE and solution.status is Status.SOLVED
    assert "report" not in str(solution) + solution.message


def test_token_ids_are_a_subset_too() -> None:
    plan, subset = optimal_plan()
    solution = verdict(plan, subset=np.flatnonzero(subset))
    np.testing.assert_array_equal(solution.subset, subset)
    with pytest.raises(otlp.errors.InvalidInputError, match="subset"):
        verdict(plan, subset=np.ones(7, dtype=bool))


class ShortPlan(OwnPlan):
    """A plan with a smaller vocabulary."""

    def marginals(self) -> Marginals:
        return Marginals(np.ones(2), np.ones(2), "closed form")


@examples(20)
@given(problem=problems())
def test_slices_alone_make_a_plan(problem: otlp.Problem) -> None:
    solution = certify(problem, "own", Answer(OwnPlan(problem)), Stopwatch())
    assert solution.guarantee >= Guarantee.LOSSLESS and solution.marginal_method == "enumerated"
    reference = ignore_drafts(problem).marginals()
    np.testing.assert_allclose(
        solution.plan.marginals().acceptance, reference.acceptance, rtol=0.0, atol=1e-15
    )


def test_marginals_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(otlp.errors.InvalidInputError, match="marginals must have shape"):
        verdict(ShortPlan(PROBLEM))


def test_a_plan_for_another_problem_is_refused() -> None:
    other = otlp.Problem(PROBLEM.target, otlp.IID(PROBLEM.drafts.mean_draft[::-1], 2))
    plan = otlp.solve(other).plan
    with pytest.raises(otlp.errors.InvalidInputError, match="got a plan for another problem"):
        verdict(plan)
    same = otlp.Problem(PROBLEM.target.copy(), otlp.IID(PROBLEM.drafts.mean_draft, 2))
    assert verdict(otlp.solve(same).plan).guarantee is Guarantee.OPTIMAL


def test_a_table_of_tuples_of_other_drafts_is_found_out() -> None:
    other = otlp.Problem(PROBLEM.target, otlp.IID(PROBLEM.drafts.mean_draft[::-1], 2))
    plan = otlp.solve(other).plan
    assert plan is not None
    solution = verdict(TablePlan(PROBLEM, *plan.table()), claim=Guarantee.OPTIMAL)
    assert solution.status is Status.CERTIFICATE_FAILED
    assert solution.guarantee is Guarantee.APPROXIMATE


@pytest.mark.parametrize("claim", [Guarantee.OPTIMAL, Guarantee.LOSSLESS])
def test_a_plan_that_changes_the_law_is_found_out(claim: Guarantee) -> None:
    solution = verdict(keep_first(), claim=claim)
    assert solution.guarantee is Guarantee.APPROXIMATE
    assert solution.status is Status.CERTIFICATE_FAILED
    q = PROBLEM.drafts.mean_draft
    assert solution.marginal_error == pytest.approx(np.abs(q - PROBLEM.target).sum(), abs=1e-15)
    # The plan accepts more than any lossless plan, so the gap is negative.
    assert solution.acceptance == pytest.approx(1.0, abs=1e-15)
    honest = verdict(keep_first(), claim=Guarantee.APPROXIMATE)
    assert honest.status is Status.SOLVED and honest.guarantee is Guarantee.APPROXIMATE


@pytest.mark.parametrize(
    "slices", [[[1.2, 0.0], [-0.2, 1.0]], [[1.5, -0.5], [0.5, 0.5]], [[0.5, 0.7], [0.5, 0.3]]]
)
def test_slices_that_are_no_laws_are_not_lossless(slices: list[list[float]]) -> None:
    """The error shows only in the slack."""
    rows = np.array(slices)
    problem = otlp.Problem(0.5 * rows.sum(axis=0), otlp.Explicit([[0], [1]], [0.5, 0.5]))
    plan = table(problem, rows)
    assert np.abs(plan.marginals().output - problem.target).sum() <= 1e-15
    assert plan.marginals().slack >= 0.1
    solution = certify(problem, "claimant", Answer(plan, Guarantee.LOSSLESS), Stopwatch())
    assert solution.guarantee is Guarantee.APPROXIMATE
    assert solution.status is Status.CERTIFICATE_FAILED


def test_a_small_error_of_the_law_is_measured() -> None:
    plan, subset = optimal_plan()
    tuples = PROBLEM.drafts.enumerate_tuples()
    for error, proved in ((0.1 * LOSSLESS_TOLERANCE, Guarantee.OPTIMAL),
                          (10.0 * LOSSLESS_TOLERANCE, Guarantee.APPROXIMATE)):  # fmt: skip
        slices = np.array([plan.conditional(row) for row in tuples.tokens])
        slices += 0.5 * error * np.array([1.0, -1.0, 0.0])
        slices = np.abs(slices)
        solution = verdict(TablePlan(PROBLEM, tuples, slices), subset=subset)
        assert solution.guarantee is proved
        assert 0.5 * error <= solution.marginal_error <= 3.0 * error


def test_a_gap_beyond_the_tolerance_is_not_optimal() -> None:
    plan, subset = optimal_plan()
    tuples = PROBLEM.drafts.enumerate_tuples()
    best = np.array([plan.conditional(row) for row in tuples.tokens])
    for share, proved in ((0.1, Guarantee.OPTIMAL), (10.0, Guarantee.LOSSLESS)):
        mixed = best + share * GAP_TOLERANCE * (PROBLEM.target - best)
        solution = verdict(TablePlan(PROBLEM, tuples, mixed), subset=subset)
        assert solution.guarantee is proved


def test_no_plan_is_no_guarantee() -> None:
    solution = verdict(None, claim=Guarantee.NONE, status=Status.TIME_LIMIT, message="late")
    assert solution.guarantee is Guarantee.NONE and solution.status is Status.TIME_LIMIT
    assert np.isnan(solution.acceptance) and np.isnan(solution.marginal_error)
    assert solution.upper_bound == 1.0


@examples(20)
@given(problem=problems(), data=st.data())
def test_no_lossless_plan_is_certified_above_the_optimum(
    problem: otlp.Problem, data: st.DataObject
) -> None:
    """For any given subset, a plan is reported as optimal only if it is optimal."""
    flags = data.draw(
        st.lists(st.booleans(), min_size=problem.vocab_size, max_size=problem.vocab_size)
    )
    plan = ignore_drafts(problem)
    answer = Answer(plan, Guarantee.OPTIMAL, np.array(flags))
    solution = certify(problem, "claimant", answer, Stopwatch())
    optimum = brute_force_optimum(problem)
    assert solution.upper_bound >= optimum - 1e-12
    assert solution.acceptance <= optimum + 1e-12
    if solution.guarantee is Guarantee.OPTIMAL:
        assert solution.acceptance >= optimum - GAP_TOLERANCE
    else:
        assert solution.status is Status.CERTIFICATE_FAILED


def test_solve_raises_where_the_certificate_fails() -> None:
    with pytest.raises(otlp.SolveError, match="proved LOSSLESS") as caught:
        otlp.solve(PROBLEM, Boaster())
    assert caught.value.solution.status is Status.CERTIFICATE_FAILED
    returned = otlp.solve(PROBLEM, Boaster(), throw=False)
    assert returned.guarantee is Guarantee.LOSSLESS and returned.plan is not None


@dataclass(frozen=True)
class Forgetful(Solver):
    """Returns its plan instead of an answer."""

    name: ClassVar[str] = "forgetful"

    def answer(self, problem: otlp.Problem, clock: Stopwatch) -> Answer:
        return ignore_drafts(problem)  # type: ignore[return-value]


def test_an_answer_that_is_none_is_refused_in_plain_words() -> None:
    with pytest.raises(otlp.errors.InvalidInputError, match=r"otlp\.Answer\(plan\)"):
        Forgetful().solve(PROBLEM)


def test_an_unsupported_problem_is_refused_with_the_reason() -> None:
    single = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 1))
    with pytest.raises(otlp.errors.UnsupportedProblemError, match="boaster: it needs two drafts"):
        otlp.solve(single, Boaster())


def test_a_draft_law_is_not_a_plan_for_another() -> None:
    """Tuples are looked up, not assumed from their position."""
    tuples = DraftTuples(np.array([[1], [0]]), np.array([0.5, 0.5]))
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 1))
    plan = TablePlan(problem, tuples, np.eye(2)[[1, 0]])
    assert plan.conditional([1]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("claim", [None, Guarantee.LOSSLESS, Guarantee.OPTIMAL])
@pytest.mark.parametrize("spoiled", ["acceptance", "output"])
def test_what_is_not_a_number_is_never_passed(spoiled: str, claim: Guarantee | None) -> None:
    class Spoiled(TablePlan):
        def marginals(self) -> Marginals:
            good = super().marginals()
            return replace(good, **{spoiled: np.array([0.1, np.nan, 0.3])})

    plan = Spoiled(PROBLEM, PROBLEM.drafts.enumerate_tuples(), ignore_drafts().conditionals)
    solution = verdict(plan, claim=claim)
    assert solution.status is Status.CERTIFICATE_FAILED
    assert solution.guarantee <= Guarantee.APPROXIMATE


def test_a_guarantee_reads_as_its_name() -> None:
    assert str(Guarantee.OPTIMAL) == f"{Guarantee.OPTIMAL}" == "OPTIMAL"


def test_loading_kernels_is_charged_by_itself() -> None:
    code = (
        "import otlp\n"
        "problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))\n"
        "first, second = otlp.solve(problem), otlp.solve(problem)\n"
        "assert first.timings.load > first.timings.total and 'loading' in str(first)\n"
        "assert second.timings.load == 0.0 and 'loading' not in str(second)"
    )
    run_python(code)
