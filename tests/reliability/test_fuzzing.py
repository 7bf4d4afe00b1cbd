"""The fuzzer finds what is planted, says how to get there again, and runs for a while.

Ten seconds of it stand in ``.ci/run``; the slow test takes ten minutes, or as many seconds as the
environment variable ``OTLP_FUZZ_SECONDS`` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.distribution import FloatArray
from tests.fuzz.__main__ import generator
from tests.fuzz.checks import check, check_certificate, check_plan
from tests.fuzz.drawing import draw
from tests.fuzz.instance import Instance
from tests.fuzz.oracle import Truth, truth
from tests.fuzz.shrinking import shrink
from tests.fuzz.wrong import Wrong
from tests.processes import ROOT

INSTANCE = Instance("iid", (0.1, 0.6, 0.3), ((0.5, 0.3, 0.2),), 2, "max-flow")


def known(instance: Instance) -> Truth:
    found = truth(instance)
    assert isinstance(found, Truth)
    return found


@pytest.mark.parametrize(
    ("scheme", "optimum"),
    [("iid", 0.85), ("greedy", 1.0), ("hub", 1.0)],
)
def test_the_oracle_knows_the_optimum(scheme: str, optimum: float) -> None:
    true = known(Instance(scheme, (0.1, 0.6, 0.3), ((0.5, 0.3, 0.2),), 2, "auto"))
    assert true.optimum == pytest.approx(optimum, abs=1e-12)
    assert true.linear_program() == pytest.approx(optimum, abs=1e-7)
    assert true.mass.sum() == pytest.approx(1.0, abs=1e-12)


def test_its_two_oracles_agree() -> None:
    compared = 0
    for number in range(60):
        true = truth(draw(generator(5, number)))
        if isinstance(true, Truth) and true.tuples is not None and true.target.size <= 10:
            assert true.linear_program() == pytest.approx(true.optimum, abs=1e-6)
            compared += 1
    assert compared > 30


def test_an_instance_is_the_same_again() -> None:
    for number in range(20):
        assert draw(generator(3, number)) == draw(generator(3, number))


class Tampered(otlp.Plan):
    """A plan whose conditionals, samples or acceptance are another's."""

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
    assert solution.plan is not None
    check_plan(solution, known(INSTANCE), np.random.default_rng(0))
    wrong = object.__new__(otlp.Solution)
    wrong.__dict__.update(vars(solution), plan=Tampered(solution.plan, **changes))
    with pytest.raises(Wrong, match=found):
        for seed in range(20):
            check_plan(wrong, known(INSTANCE), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"upper_bound": 0.84}, "too low"),
        ({"upper_bound": 0.86}, "not that of the subset"),
        ({"acceptance": 0.85001, "upper_bound": 0.85}, "above the optimum"),
        ({"acceptance": 0.8}, "optimal and is not"),
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


def test_a_failure_is_made_small() -> None:
    # what fails here is the check itself: a problem that the constructor must refuse and the
    # oracle takes, four tokens and three options of noise around it
    instance = Instance(
        scheme="iid",
        target=(0.7, 0.1, 0.1, 0.1, 0.5),
        drafts=((0.25, 0.25, 0.25, 0.125, 0.125),),
        n=4,
        solver="orderings",
        options={"gap": 1e-6, "max_iterations": 1000},
        form="float64",
    )
    with pytest.raises(Wrong) as caught:
        check(instance)
    small, wrong = shrink(instance, caught.value, seconds=60.0)
    assert wrong.check == caught.value.check
    assert small.n == 1 and not small.options and small.form == "list"
    assert small.vocab_size <= instance.vocab_size
    assert f"otlp.IID({list(small.drafts[0])}, 1)" in str(small)


def test_two_seconds_of_it() -> None:
    # what it finds has a line of its own in .ci/run; here it must run, count and print its seed
    done = fuzz("--seconds", "2", "--seed", "7")
    assert done.returncode in (0, 1), done.stderr
    assert "seed 7:" in done.stdout and "| solver |" in done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_a_while_of_it() -> None:
    done = fuzz("--seconds", os.environ.get("OTLP_FUZZ_SECONDS", "600"), "--seed", "2026")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words], capture_output=True, text=True, cwd=ROOT
    )
