"""Audits of the samplers of all solvers: their exact law must be the target.

`Plan.sample` is enumerated draw by draw, so this tests the code that a decoder calls, not the
slices that the verifier enumerates.
"""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.auditing import AuditSettings, Verdict
from otlp.drafts.by_name import SCHEMES, make_scheme
from otlp.solvers import SOLVERS

pytestmark = pytest.mark.usefixtures("few_repetitions")

COMPILED = "martingale"
"""The plans compare random numbers in compiled code, which cannot be enumerated."""

P, Q = np.random.default_rng(0).dirichlet(np.ones(4), size=2)
PROBLEMS = {
    f"{scheme}-{n}": otlp.Problem(P, make_scheme(scheme, Q, n))
    for scheme in SCHEMES
    for n in (1, 2, 3)
    if scheme != "hub" or n == 2
}
CASES = [
    (name, case)
    for name in SOLVERS
    for case in PROBLEMS
    if SOLVERS[name]().supports(PROBLEMS[case])
]


@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(*one, marks=[pytest.mark.slow] * (one[1].endswith(("1", "3")))) for one in CASES],
)
def test_the_sampler_of_a_plan(name: str, case: str) -> None:
    """With a certificate, and prepared without one; with few repetitions."""
    problem, solver = PROBLEMS[case], SOLVERS[name]()
    solution = solver.solve(problem)
    compiled = solution.solver == COMPILED
    prepared = solver.prepare(problem, otlp.Guarantee.LOSSLESS)
    for plan in (prepared,) if problem.n == 3 else (solution.plan, prepared):
        sample = lambda tokens, p, q, rng, plan=plan: plan.sample(tokens, rng)  # noqa: E731
        report = otlp.audit(sample, P, problem.drafts, settings=AuditSettings(samples=5_000))
        assert report.verdict is (Verdict.NOT_REJECTED if compiled else Verdict.LOSSLESS), report
        if not compiled:
            # The mass of paths too unlikely to enumerate counts, and grows with three drafts.
            assert report.total_variation < (1e-10 if problem.n == 3 else 1e-12)
            tolerance = 1e-2 if name == "global-resolution" else 1e-10
            assert report.acceptance == pytest.approx(solution.acceptance, abs=tolerance)


def test_every_solver_is_audited() -> None:
    assert {name for name, _ in CASES} == set(SOLVERS)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * case.endswith("3")) for case in PROBLEMS],
)
def test_a_solver_itself(case: str) -> None:
    problem = PROBLEMS[case]
    report = otlp.audit(SOLVERS["auto"](), P, problem.drafts, settings=AuditSettings(samples=5_000))
    best = otlp.optimal_acceptance(problem)
    assert report.verdict is Verdict.LOSSLESS, str(report)
    assert report.acceptance == pytest.approx(best, abs=1e-7)


def test_a_plan_of_compiled_code_is_judged_by_its_conditionals() -> None:
    problem = PROBLEMS["iid-2"]
    report = otlp.audit(
        SOLVERS[COMPILED](), P, problem.drafts, settings=AuditSettings(samples=10_001)
    )
    assert report.verdict is Verdict.LOSSLESS
    assert report.method == "conditional"
    assert report.acceptance == pytest.approx(otlp.optimal_acceptance(problem), abs=1e-12)
    assert "compiled by numba" in report.why_sampled
    assert report.sample_test is not None and report.sample_test.samples == 10_000
    sampled = otlp.audit(
        SOLVERS[COMPILED](), P, problem.drafts, settings=AuditSettings(samples=10_001, max_paths=0)
    )
    assert sampled.verdict is Verdict.NOT_REJECTED
    assert abs(sampled.acceptance - report.acceptance) < 2.0 * sampled.acceptance_error < 0.04
    assert "± " in str(sampled)
