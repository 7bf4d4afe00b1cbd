from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.certificate import Answer, certify
from otlp.reductions import (
    FullProgram,
    MergeTuples,
    PrimalDual,
    Relaxation,
)
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import DEGENERATE, brute_force_optimum, check_solution, problems
from tests.otlp.reductions.relaxed_optimum import maximum

BOTH = pytest.mark.parametrize("reduction", [Relaxation(), MergeTuples()], ids=["tuples", "sets"])
Reduction = Relaxation | MergeTuples


@BOTH
@examples(25)
@given(problem=problems())
def test_value_and_plan_survive(reduction: Reduction, problem: otlp.Problem) -> None:
    relaxed, inverse = reduction.apply(problem)
    flow = maximum(relaxed)
    assert abs(flow.sum() - brute_force_optimum(problem)) <= 1e-12
    plan = reduction.invert(PrimalDual(flow), inverse).primal
    solution = certify(problem, "lifted", Answer(plan, otlp.Guarantee.LOSSLESS), Stopwatch())
    assert solution.guarantee is otlp.Guarantee.LOSSLESS
    assert abs(solution.acceptance - flow.sum()) <= 1e-12
    check_solution(solution)


@BOTH
@examples(25)
@given(problem=problems(), data=st.data())
def test_any_flow_gives_a_lossless_plan(
    reduction: Reduction, problem: otlp.Problem, data: st.DataObject
) -> None:
    relaxed, inverse = reduction.apply(problem)
    size = relaxed.groups.members.size
    entry = st.sampled_from([-1.0, 0.0, 5e-324, 1e-300, 1e-12, 0.01, 0.3, 5.0, 1e300, np.inf])
    flow = np.array(data.draw(st.lists(entry, min_size=size, max_size=size)))
    plan = reduction.invert(PrimalDual(flow), inverse).primal
    solution = certify(problem, "any", Answer(plan, otlp.Guarantee.LOSSLESS), Stopwatch())
    assert solution.guarantee is otlp.Guarantee.LOSSLESS
    assert solution.acceptance <= brute_force_optimum(problem) + 1e-12
    check_solution(solution)


@BOTH
def test_no_flow_draws_from_the_target(reduction: Reduction) -> None:
    problem = DEGENERATE["one draft"]
    relaxed, inverse = reduction.apply(problem)
    nothing = PrimalDual(np.zeros(relaxed.groups.members.size))
    plan = reduction.invert(nothing, inverse).primal
    np.testing.assert_allclose(plan.conditional([1]), problem.target, atol=1e-16)


@pytest.mark.parametrize(
    ("reduction", "words"),
    [
        (Relaxation(10_000), "tuples"),
        (MergeTuples(10_000), "sets"),
        (FullProgram(10**7), "table of 125,000 tuples"),  # whose list fits
    ],
)
def test_too_large_is_refused_with_a_way_out(
    reduction: Reduction | FullProgram, words: str
) -> None:
    problem = otlp.Problem(np.full(50, 0.02), otlp.IID(np.full(50, 0.02), 3))
    with pytest.raises(otlp.errors.SizeLimitError, match=f"{words}.*memory_limit.*martingale"):
        reduction.apply(problem)
