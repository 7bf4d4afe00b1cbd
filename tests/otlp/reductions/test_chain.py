"""A chain of reductions is a reduction: steps in order, and lifted in reverse order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.certificate import Answer, certify
from otlp.reductions import (
    Chain,
    ComplementarySlackness,
    FullProgram,
    MergeTuples,
    NetworkReduction,
    PrimalDual,
    Reduction,
    Relaxation,
    RelaxedProgram,
    Support,
)
from otlp.solvers.engines import highs, ortools
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import brute_force_optimum, check_solution, problems


@examples(25)
@given(problem=problems())
def test_value_plan_and_dual_come_back_together(problem: otlp.Problem) -> None:
    optimum = brute_force_optimum(problem)
    chains = {
        "flow": Chain(Support(), MergeTuples(), NetworkReduction()),
        "relaxed": Chain(Support(), MergeTuples(), RelaxedProgram()),
        "full": Chain(Chain(Support()), FullProgram()),
    }
    for name, chain in chains.items():
        result, inverse = chain.apply(problem)
        answer: PrimalDual[Any, Any] = (
            ortools.max_flow(result) if name == "flow" else highs.solve(result)[0]
        )
        plan, subset = chain.invert(answer, inverse)
        assert plan.problem is problem
        lifted = certify(problem, name, Answer(plan, subset=subset), Stopwatch())
        assert lifted.guarantee is otlp.Guarantee.OPTIMAL
        assert lifted.acceptance == pytest.approx(optimum, abs=1e-9)
        assert problem.dual_value(subset) == pytest.approx(optimum, abs=1e-9)
        check_solution(lifted)
    small, inverse = Support().apply(problem)
    assert small.drafts.support[: inverse.tokens.size].all()
    assert abs(brute_force_optimum(small) - optimum) <= 1e-12


def test_a_chain_refuses_what_one_of_its_links_refuses_before_anything_is_listed() -> None:
    wide = otlp.Problem(np.full(10**5, 1e-5), otlp.IID(np.full(10**5, 1e-5), 50))
    chain = Chain(Support(), MergeTuples(), NetworkReduction())
    with pytest.raises(otlp.errors.SizeLimitError, match="sets of up to 50 of 100000 tokens"):
        chain.apply(wide)


def test_the_empty_chain_changes_nothing() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.3, 0.7], 2))
    result, inverse = Chain().apply(problem)
    assert result is problem
    answer = PrimalDual(None, None)
    assert Chain().invert(answer, inverse) is answer


LINKS = (
    *(Support, Relaxation, MergeTuples, NetworkReduction, ComplementarySlackness),
    *(RelaxedProgram, FullProgram),
)


@pytest.mark.parametrize("reduction", [*(link() for link in LINKS), Chain(Support())])
@pytest.mark.parametrize("wrong", [3, None, (), [], "a", np.ones(3), PrimalDual(None)])
def test_what_is_no_problem_and_what_is_no_answer_is_refused(
    reduction: Reduction[Any, Any, Any], wrong: Any
) -> None:
    with pytest.raises(otlp.errors.InvalidInputError, match="source must be a "):
        reduction.apply(wrong)
    if not isinstance(wrong, PrimalDual):
        with pytest.raises(otlp.errors.InvalidInputError, match="answer must be a "):
            reduction.invert(wrong, wrong)
    with pytest.raises(otlp.errors.InvalidInputError, match="inverse "):
        reduction.invert(PrimalDual(None), wrong)


def test_links_that_do_not_fit_are_refused() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.3, 0.7], 2))
    message = "Support must accept the result of MergeTuples"
    with pytest.raises(otlp.errors.InvalidInputError, match=message):
        Chain(MergeTuples(), Support())
    chain = Chain(Support(), MergeTuples())
    _, (first, second) = chain.apply(problem)
    for wrong in ((1, 2), (second, first)):
        with pytest.raises(otlp.errors.InvalidInputError, match="inverse must be a "):
            chain.invert(PrimalDual(np.zeros(4)), wrong)


def test_a_chain_of_others_is_refused() -> None:
    message = "a link of the chain must be a Reduction, got 3"
    with pytest.raises(otlp.errors.InvalidInputError, match=message):
        Chain(Support(), 3)
