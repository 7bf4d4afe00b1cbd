"""Random problems for every scheme and solver against the oracle, which detects planted errors.

Hypothesis draws the problems and prints the smallest failing example.
`--hypothesis-profile=explore` draws new problems, as in ``.ci/run``; `--hypothesis-profile=long`
draws 20,000 for each scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.distribution import FloatArray
from tests.fuzz.checks import check, check_certificate, check_plan
from tests.fuzz.instance import Instance
from tests.fuzz.oracle import Truth, truth
from tests.fuzz.strategies import SOLVERS_OF, batched_instances, instances
from tests.fuzz.wrong import Wrong
from tests.instances import SMALL, supported

INSTANCE = Instance("iid", (0.1, 0.6, 0.3), ((0.5, 0.3, 0.2),), 2, "max-flow")


def known(instance: Instance) -> Truth:
    found = truth(instance)
    assert isinstance(found, Truth)
    return found


@pytest.mark.parametrize(("scheme", "optimum"), [("iid", 0.85), ("greedy", 1.0), ("hub", 1.0)])
def test_the_oracle_knows_the_optimum(scheme: str, optimum: float) -> None:
    true = known(Instance(scheme, (0.1, 0.6, 0.3), ((0.5, 0.3, 0.2),), 2, "auto"))
    assert true.optimum == pytest.approx(optimum, abs=1e-12)
    assert true.linear_program() == pytest.approx(optimum, abs=1e-7)
    assert true.mass.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.fixture(scope="module")
def loaded() -> None:
    """Load engines, whose imports may warn."""
    for name, solver in supported(SMALL):
        otlp.solve(SMALL[name], solver, throw=False)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("scheme", SOLVERS_OF)
@given(data=st.data())
def test_what_is_true_of_every_problem(scheme: str, data: st.DataObject) -> None:
    check(data.draw(instances(scheme)))


@pytest.mark.filterwarnings("error")
@given(instance=batched_instances())
def test_what_is_true_of_every_batch(instance: Instance) -> None:
    pytest.importorskip("torch")
    check(instance)


class Tampered(otlp.Plan):
    """A plan with wrong conditionals, samples or acceptance."""

    def __init__(self, plan: otlp.Plan, **changes: Callable[..., Any]) -> None:
        super().__init__(plan.problem)
        self.plan, self.changes = plan, changes

    def conditional(self, draft_tokens: Any) -> FloatArray:
        row = self.plan.conditional(draft_tokens)
        return self.changes["conditionals"](row) if "conditionals" in self.changes else row

    def sample(self, draft_tokens: Any, rng: np.random.Generator) -> int:
        if "sample" in self.changes:
            return int(self.changes["sample"](draft_tokens))
        return self.plan.sample(draft_tokens, rng)

    def marginals(self) -> Any:
        return self.plan.marginals()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"conditionals": lambda row: row * 2.0}, "does not sum to one"),
        ({"conditionals": lambda row: row[::-1]}, "the output is not the target"),
        ({"conditionals": lambda row: row - 1e-3}, "negative"),
        ({"conditionals": lambda row: row + np.nan}, "not finite"),
        ({"conditionals": lambda row: 0.5 * row + 0.5 / 3}, "the output is not the target"),
        ({"sample": lambda drafts: 0}, "conditional 0"),
    ],
)
def test_a_wrong_plan_is_found(changes: dict[str, Callable[..., Any]], found: str) -> None:
    solution = otlp.solve(INSTANCE.problem(), "max-flow")
    check_plan(solution, known(INSTANCE), np.random.default_rng(0))
    wrong = object.__new__(otlp.Solution)
    wrong.__dict__.update(vars(solution), plan=Tampered(solution.plan, **changes))
    with pytest.raises(Wrong, match=found):
        for seed in range(20):
            check_plan(wrong, known(INSTANCE), np.random.default_rng(seed))


LARGE = {"acceptance": 0.85001, "acceptance_interval": (0.85001, 0.85001)}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"upper_bound": 0.84}, "too low"),
        ({"upper_bound": 0.86}, "not that of the subset"),
        ({"acceptance": 0.85001}, "outside of its interval"),
        (LARGE | {"upper_bound": 0.85}, "above the optimum"),
        ({"acceptance": 0.8, "acceptance_interval": (0.8, 0.8)}, "optimal and is not"),
        ({"guarantee": otlp.Guarantee.LOSSLESS}, "did not solve"),
        ({"marginal_error": 1e-3}, "lossless and is not"),
        ({"status": otlp.Status.CERTIFICATE_FAILED}, "certificate failed"),
    ],
)
def test_a_wrong_certificate_is_found(changes: dict[str, Any], found: str) -> None:
    problem = INSTANCE.problem()
    solution = otlp.solve(problem, "max-flow")
    check_certificate(INSTANCE, problem, solution, known(INSTANCE))
    wrong = object.__new__(otlp.Solution)
    wrong.__dict__.update(vars(solution), **changes)
    with pytest.raises(Wrong, match=found):
        check_certificate(INSTANCE, problem, wrong, known(INSTANCE))
