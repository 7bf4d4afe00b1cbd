"""Audits of plans: conditionals must be distributions, and samples must follow them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import otlp
from otlp.auditing import AuditSettings, Verdict, audit
from otlp.distribution import FloatArray
from otlp.plan import Marginals, Plan, TablePlan
from tests.otlp.auditing.rules import P, Q
from tests.otlp.auditing.ways import BOTH, EXACT, SAMPLED
from tests.own_plans import OwnPlan, ignore_drafts

pytestmark = pytest.mark.usefixtures("few_calls")

PROBLEM = otlp.Problem(P, otlp.IID(Q, 2))
SHIFT = np.array([0.2, 0.0, -0.2, 0.0, 0.0])


class TargetPlan(OwnPlan):
    """Ignores the drafts; lossless."""

    def marginals(self) -> Marginals:
        return Marginals(self.problem.target, self.problem.target, "claimed")


class FirstDraft(TargetPlan):
    """Samples the first draft, independent of the conditional."""

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        return int(np.asarray(draft_tokens)[0])


class FirstDraftInCompiledCode(FirstDraft):
    """Samples the first draft in compiled code, which cannot be enumerated."""

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        rng.normal()
        return super().sample(draft_tokens, rng)


class Swapped(TargetPlan):
    """Accepts the second draft where the conditional has the first, and vice versa.

    The output is lossless either way, as q is the target: no test of the output detects the swap.
    """

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        law = np.zeros(self.problem.vocab_size)
        law[np.asarray(draft_tokens)[0]] = 1.0
        return law

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        return int(np.asarray(draft_tokens)[1])


class Broken(TargetPlan):
    """Conditionals that are not distributions, for tuples that begin with token 2."""

    def __init__(self, problem: otlp.Problem, wrong: Any) -> None:
        super().__init__(problem)
        self.wrong = wrong

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        right = super().conditional(draft_tokens)
        return self.wrong(right) if np.asarray(draft_tokens)[0] == 2 else right

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        return int(rng.choice(5, p=self.problem.target))


@pytest.mark.parametrize("kind", [TargetPlan, ignore_drafts])
@pytest.mark.parametrize("max_paths", [EXACT, 10, SAMPLED])
def test_a_right_plan(max_paths: int, kind: Callable[[otlp.Problem], Plan]) -> None:
    """Also with fewer paths than tuples: the marginals reported by the plan are not a proof."""
    plan = kind(PROBLEM)
    report = audit(
        plan, P, PROBLEM.drafts, settings=AuditSettings(max_paths=max_paths, samples=10_001)
    )
    if max_paths == EXACT:
        assert (report.verdict, report.method) == (Verdict.LOSSLESS, "enumeration")
        assert report.repetitions > 2_000
        assert report.sample_error < 1e-15
        np.testing.assert_allclose(report.output, P, atol=1e-15)
        accepted = ignore_drafts(PROBLEM).marginals().acceptance.sum()
        assert report.acceptance == pytest.approx(accepted, abs=1e-14)
    else:
        assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "sampling")
        assert report.sample_test is not None and report.sample_test.samples == 10_000
        assert report.sample_test.p_value > 1e-6


def test_a_plan_for_another_target_or_for_other_drafts() -> None:
    assert audit(ignore_drafts(PROBLEM), Q, PROBLEM.drafts).verdict is Verdict.NOT_LOSSLESS
    narrow = ignore_drafts(otlp.Problem(P, otlp.IID([0.5, 0.5, 0.0, 0.0, 0.0], 2)))
    assert audit(narrow, P, PROBLEM.drafts).verdict is Verdict.RULE_FAILED


@BOTH
@pytest.mark.parametrize("kind", [FirstDraft, FirstDraftInCompiledCode])
def test_a_plan_that_samples_its_first_draft(kind: type[Plan], max_paths: int) -> None:
    report = audit(
        kind(PROBLEM), P, PROBLEM.drafts, settings=AuditSettings(max_paths=max_paths, samples=5_000)
    )
    assert report.verdict is Verdict.NOT_LOSSLESS
    assert report.total_variation == pytest.approx(0.5 * np.abs(P - Q).sum(), abs=0.03)


@BOTH
def test_samples_that_do_not_follow_the_conditional(max_paths: int) -> None:
    problem = otlp.Problem(Q, otlp.IID(Q, 2))
    report = audit(
        Swapped(problem),
        Q,
        problem.drafts,
        settings=AuditSettings(max_paths=max_paths, samples=5_000),
    )
    assert report.verdict is Verdict.SAMPLE_DIFFERS
    assert not report.passed
    assert "does not follow its conditional" in str(report)
    if max_paths:
        different = 1.0 - float((Q**2).sum())
        assert report.sample_error == pytest.approx(different, abs=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda law: 2.0 * law, "sums to 2"),
        (lambda law: 0.0 * law, "sums to 0"),
        (lambda law: law + SHIFT, "negative entry -0.18"),
        (lambda law: law[:-1], r"shape \(4,\)"),
        (lambda law: law * np.nan, "not finite"),
        (lambda law: "law", "raises ValueError"),
    ],
    ids=["two", "zero", "negative", "short", "nan", "text"],
)
def test_conditionals_that_are_no_distributions(wrong: Any, words: str, max_paths: int) -> None:
    plan = Broken(PROBLEM, wrong)
    report = audit(
        plan, P, PROBLEM.drafts, settings=AuditSettings(max_paths=max_paths, samples=2_000)
    )
    assert report.verdict is Verdict.RULE_FAILED
    (what,) = report.failures
    assert re.search(words, what)
    assert report.failures[what] == pytest.approx(Q[2], abs=1e-12 if max_paths else 0.05)


@pytest.mark.usefixtures("few_repetitions")
def test_conditionals_off_by_rounding_pass() -> None:
    plan = Broken(PROBLEM, lambda law: law + np.array([1e-9, 0.0, -1e-9, 0.0, 1e-9]))
    assert audit(plan, P, PROBLEM.drafts).verdict is Verdict.LOSSLESS


def test_a_plan_of_tables_with_bad_rows() -> None:
    tuples = PROBLEM.drafts.enumerate_tuples()
    rows = np.tile(P, (len(tuples.mass), 1))
    for bad in (0.0 * rows, 2.0 * rows, rows + SHIFT):
        report = audit(TablePlan(PROBLEM, tuples, bad), P, PROBLEM.drafts)
        assert report.verdict is Verdict.RULE_FAILED
        assert sum(report.failures.values()) == pytest.approx(1.0)


def test_the_law_of_places_is_uniform_for_every_solver() -> None:
    """A false alarm here would be an error of a sampler against its own conditionals."""
    for name in ("max-flow", "martingale", "orderings", "k-seq"):
        solution = otlp.solve(PROBLEM, solver=name)
        report = audit(
            solution.plan,
            P,
            PROBLEM.drafts,
            settings=AuditSettings(max_paths=SAMPLED, samples=1_000, tolerance=1.0),
        )
        assert report.verdict is Verdict.NOT_REJECTED, str(report)
