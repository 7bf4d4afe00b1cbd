"""Plans without a certificate: the same rule, lossless, for every solver and scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.solvers import SOLVERS, GlobalResolution, RecursiveRejection
from tests.examples import examples
from tests.instances import without_replacement_problems
from tests.own_plans import keep_first

P, Q = np.random.default_rng(3).dirichlet(np.ones(4), size=2)


def test_no_certificate_is_made() -> None:
    """A certificate would exceed the memory of any machine; drawing a token does not."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(50_000, 0.1), size=2) + 1e-12
    p, q = p / p.sum(), q / q.sum()
    drafts = otlp.WithoutReplacement(q, 400)
    tokens = drafts.sample(rng)
    for name in ("recursive-rejection", "naive"):
        plan = SOLVERS[name]().prepare(otlp.Problem(p, drafts))
        assert 0 <= plan.sample(tokens, rng) < p.size
    assert "_race" not in vars(drafts)


# Supported calls


@dataclass(frozen=True)
class First(otlp.Solver):
    """Outputs the first draft, for any target."""

    name: ClassVar[str] = "first"

    def answer(self, problem, clock):
        return otlp.Answer(keep_first(problem))


def test_every_solver_that_is_lossless_by_construction_says_so() -> None:
    """The others pass on numbers of an engine or the plan of another solver."""
    silent = {name for name, solver in SOLVERS.items() if solver().promise is otlp.Guarantee.NONE}
    assert silent == {"auto", "linear-program", "max-flow"}


def test_what_is_not_promised_is_certified() -> None:
    same = otlp.Problem(Q, otlp.IID(Q, 2))
    assert First().prepare(same).conditional([2, 0]).tolist() == [0.0, 0.0, 1.0, 0.0]
    other = otlp.Problem(P, otlp.IID(Q, 2))
    with pytest.raises(otlp.SolveError, match="the plan must be LOSSLESS, got APPROXIMATE"):
        First().prepare(other)
    assert First().prepare(other, otlp.Guarantee.APPROXIMATE) is not None
    with pytest.raises(otlp.SolveError, match="must be OPTIMAL"):
        SOLVERS["naive"]().prepare(other, otlp.Guarantee.OPTIMAL)
    assert SOLVERS["martingale"]().prepare(other, otlp.Guarantee.OPTIMAL) is not None
    # the published plan may be lossy
    with pytest.raises(otlp.SolveError, match="must be LOSSLESS"):
        GlobalResolution.published(0.1).prepare(
            otlp.Problem(np.arange(1, 31) / 465.0, otlp.IID(np.arange(30, 0, -1) / 465.0, 2))
        )


def test_what_cannot_be_prepared_is_refused() -> None:
    different = otlp.Problem(P, otlp.WithoutReplacement(Q, 2))
    for name in ("k-seq", "hub", "greedy", "speculative-sampling", "martingale"):
        with pytest.raises(UnsupportedProblemError):
            SOLVERS[name]().prepare(different)
    with pytest.raises(InvalidInputError, match=r"otlp\.Problem"):
        SOLVERS["naive"]().prepare(P)
    with pytest.raises(InvalidInputError, match="guarantee"):
        SOLVERS["naive"]().prepare(different, "LOSSLESS")


# The acceptance of recursive rejection, estimated


def check_estimate(problem: otlp.Problem, **options: int) -> None:
    exact = RecursiveRejection().solve(problem)
    rough = RecursiveRejection(max_sequences=0.5, **options).solve(problem)
    low, high = rough.acceptance_interval
    assert low <= exact.acceptance + 1e-12 and exact.acceptance - 1e-12 <= high
    assert low <= rough.acceptance + 1e-12 and rough.acceptance - 1e-12 <= high
    assert rough.guarantee is otlp.Guarantee.LOSSLESS
    assert rough.marginal_error <= 1e-12
    assert "by construction" in rough.marginal_method
    assert exact.acceptance_interval == (exact.acceptance, exact.acceptance)


@given(without_replacement_problems(min_n=2))
@examples(10)
def test_an_estimate_without_replacement_holds_the_acceptance(problem: otlp.Problem) -> None:
    check_estimate(problem, samples=300, seed=7)


@pytest.mark.parametrize("scheme", ["greedy", "hub"])
def test_an_estimate_for_other_dependent_drafts(scheme: str) -> None:
    check_estimate(otlp.Problem(P, make_scheme(scheme, Q, 2)), samples=500)


def test_an_estimate_of_large_drafts_without_replacement() -> None:
    """Compared with the sum over all sequences; reproducible by seed."""
    p, q = np.random.default_rng(1).dirichlet(np.full(120, 0.2), size=2)
    problem = otlp.Problem(p, otlp.WithoutReplacement(q + 1e-9, 3))
    exact = RecursiveRejection().solve(problem)
    rough = RecursiveRejection(max_sequences=1, samples=20_000)
    found = rough.solve(problem)
    low, high = found.acceptance_interval
    assert low <= exact.acceptance <= high
    assert high - low < 0.02
    assert found.marginal_error <= 1e-12
    np.testing.assert_allclose(
        found.plan.marginals().acceptance, exact.plan.marginals().acceptance, rtol=0.0, atol=0.01
    )
    assert rough.solve(problem).acceptance == found.acceptance
    assert RecursiveRejection(max_sequences=1, seed=1).solve(problem).acceptance != found.acceptance


def test_more_sequences_than_memory_end_with_the_time() -> None:
    problem = otlp.Problem(P, otlp.WithoutReplacement(Q, 3))
    found = RecursiveRejection(max_sequences=1, samples=10**15, time_limit=0.01).solve(problem)
    low, high = found.acceptance_interval
    assert low <= found.acceptance <= high


def test_an_estimate_is_never_called_optimal() -> None:
    problem = otlp.Problem(Q, otlp.WithoutReplacement(Q, 3))
    assert RecursiveRejection().solve(problem).gap < 1e-12
    rough = RecursiveRejection(max_sequences=1).solve(problem)
    assert rough.acceptance == pytest.approx(1.0, abs=1e-12)
    assert rough.guarantee is otlp.Guarantee.LOSSLESS
    assert rough.status is otlp.Status.SOLVED


def test_a_deadline_inside_a_solver_is_a_solve_error() -> None:
    @dataclass(frozen=True)
    class Late(otlp.Solver):
        name: ClassVar[str] = "late"

        @property
        def promise(self) -> otlp.Guarantee:
            return otlp.Guarantee.LOSSLESS

        def answer(self, problem: otlp.Problem, clock: object) -> otlp.Answer:
            raise TimeoutError("stopped after 1 s")

    problem = otlp.Problem(P, otlp.IID(Q, 2))
    with pytest.raises(otlp.SolveError, match="stopped after 1 s") as caught:
        Late().prepare(problem)
    assert caught.value.solution.status is otlp.Status.TIME_LIMIT
