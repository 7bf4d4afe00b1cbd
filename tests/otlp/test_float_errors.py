"""Results do not depend on `np.errstate` of the caller, also when probabilities underflow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.decode.models.model import Sampling
from otlp.distribution import FloatArray
from otlp.errors import OTLPError
from otlp.solvers import SOLVERS
from tests.instances import DEGENERATE
from tests.otlp.auditing.rules import leviathan

TINY = np.array([1.0, 1e-300, 5e-324])
PEAKED = [0.999998, 1e-6, 1e-6]
PROBLEMS = {
    **{
        name: case
        for name, case in DEGENERATE.items()
        if 0.0 < case.target[case.target > 0].min() < 1e-99
    },
    "without replacement": otlp.Problem([0.5, 0.25, 0.25], otlp.WithoutReplacement(PEAKED, 2)),
    "tiny without replacement": otlp.Problem(TINY[::-1], otlp.WithoutReplacement(TINY, 2)),
    "tiny greedy": otlp.Problem(TINY[::-1], otlp.Greedy(TINY, 2)),
    "tiny independent": otlp.Problem(TINY[::-1], otlp.Independent([TINY, TINY])),
    "tiny often": otlp.Problem(TINY[::-1], otlp.IID(TINY, 50)),
    "hub": otlp.Problem([1e-300, 0.5, 0.5], otlp.Hub([0.998, 0.001, 0.001])),
}


def answers(problem: otlp.Problem, solver: str) -> Iterator[Callable[[], Any]]:
    """Call the methods of a problem in turn."""
    if solver == "auto":
        yield lambda: otlp.optimal_acceptance(problem)
        yield lambda: copy.deepcopy(problem.drafts).mean_draft
        yield lambda: problem.drafts.probability(problem.drafts.sample(np.random.default_rng(0)))
    tokens = problem.drafts.sample(np.random.default_rng(1))
    plan = otlp.solve(problem, solver).plan
    yield lambda: otlp.solve(problem, solver).acceptance
    if plan is not None:
        yield lambda: plan.conditional(tokens)
        yield lambda: plan.sample(tokens, np.random.default_rng(2))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_solver_looks_at_it(problem: otlp.Problem) -> None:
    for solver in (*(name for name in SOLVERS if name != "cvxpy"), "auto"):
        try:
            asked = [(ask, ask()) for ask in answers(problem, solver)]
        except OTLPError:
            continue  # problems that the solver does not support
        with np.errstate(all="raise"):
            for ask, answer in asked:
                assert np.array_equal(ask(), answer, equal_nan=True), solver


LOGITS = [[0.0, -800.0], [0.0, -1e308], [1e308, -1e308], [0.0, -np.inf]]


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("temperature", [1e-300, 0.01, 1.0, 100.0])
def test_no_distribution_looks_at_it(logits: list[float], temperature: float) -> None:
    def found() -> list[FloatArray]:
        rows = np.array([logits])
        return [
            otlp.softmax(rows, temperature),
            Sampling(temperature).distributions(rows),
            Sampling(temperature, 1, 0.5).distributions(rows),
        ]

    wanted = found()
    with np.errstate(all="raise"):
        assert np.array_equal(found(), wanted)


class Steep(otlp.decode.Model):
    """Logits so different that most probabilities underflow."""

    name = "steep"

    def __init__(self, seed: int, scale: float = 300.0) -> None:
        self.table = np.random.default_rng(seed).normal(size=(6, 6)) * scale

    @property
    def vocab_size(self) -> int:
        return 6

    def start(self, context: Any) -> None:
        self.last = int(context[-1])

    def logits(self, tree: Any, nodes: Any) -> FloatArray:
        return self.table[[tree.tokens[node] if node else self.last for node in nodes]]

    def advance(self, tree: Any, node: int, token: int) -> None:
        self.last = token


def decoded(draft: Any, target: Any, drafting: Any, verification: Any) -> list[int]:
    rng = np.random.default_rng(1)
    how = {"draft": draft, "drafting": drafting, "verification": verification}
    return [*map(int, otlp.decode.decode(target, [[1]], 12, rng, **how)[0].tokens)]


def of_models() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return every verification with its supported drafts, and every kind of draft model."""
    one, other = Steep(0), Steep(1)
    draftings = {
        "paths": otlp.decode.iid_paths(2, 3),
        "path": otlp.decode.iid_paths(1, 3),
        "different": otlp.decode.without_replacement([2, 2]),
        "top": otlp.decode.top_tree(4, 3),
        "certain": otlp.decode.certain_tree([-1, 0, 0, 1]),
        "hub": otlp.decode.hub_pairs(2),
        "prefix": otlp.decode.prefix_tree([2, 2]),
        "delayed": otlp.decode.delayed_paths(1, 2, 2),
    }
    for name in otlp.decode.ALGORITHMS:
        rule = otlp.decode.find_verification(name)
        for kind, drafting in draftings.items():
            if rule.supports(drafting):
                yield f"{name}, {kind}", partial(decoded, other, one, drafting, rule)
    noisy, noise = otlp.decode.with_shared_noise(other, one, seed=7)
    equal = otlp.decode.Equality()
    yield "equality", lambda: decoded(noisy, noise, draftings["top"], equal)
    block = otlp.decode.Block()
    for model in (
        otlp.decode.Mixture([other, Steep(2)]),
        otlp.decode.Copying(other),
        otlp.decode.NGram(6),
        otlp.decode.PromptLookup(6),
        otlp.decode.Perturbed(other, seed=0),
    ):
        yield type(model).__name__, partial(decoded, model, one, draftings["path"], block)


def of_captures() -> Iterator[tuple[str, Callable[[], Any]]]:
    whole = otlp.synthetic.generate(2, 1000)
    kept = otlp.captures.builtin()
    for temperature in (0.001, 0.01, 1.0):
        for name, found in (("whole", whole), ("top", kept)):
            asked = partial(found.distributions, 0, temperature, None, 20, 0.9)
            yield f"{name}, {temperature}", asked
        yield f"open, {temperature}", partial(kept.truncation, 0, temperature)


def inclusion(drafts: otlp.DraftScheme) -> FloatArray:
    """Return `inclusion` computed anew, without the cached value."""
    return copy.deepcopy(drafts).inclusion


def cut(drafts: otlp.DraftScheme) -> FloatArray:
    return drafts.top_k(2).mean_draft


def enumerated(drafts: otlp.DraftScheme) -> FloatArray:
    return np.append(drafts.enumerate_sets().mass, drafts.enumerate_tuples().mass)


def of_everything_else() -> Iterator[tuple[str, Callable[[], Any]]]:
    problem = otlp.Problem(TINY[::-1], otlp.IID(TINY, 3))
    for drafts in (problem.drafts, otlp.WithoutReplacement(TINY, 2), otlp.Independent([TINY] * 3)):
        inside = np.array([False, True, True])
        yield f"{drafts!r} within", partial(drafts.mass_within, inside)
        yield f"{drafts!r} touching", partial(drafts.mass_touching, inside)
        yield f"{drafts!r} marginals", partial(drafts.priority_marginals, np.array([2, 1, 0]))
        yield f"{drafts!r} inclusion", partial(inclusion, drafts)
        yield f"{drafts!r} top", partial(cut, drafts)
        yield f"{drafts!r} sets", partial(enumerated, drafts)
    yield "table", lambda: otlp.solve(problem, "max-flow").plan.table()[1]
    yield "arrays", lambda: otlp.export.lp_arrays(problem).c
    yield "many", lambda: [one.solution.acceptance for one in otlp.solve_many([problem])]
    half = TINY * 0.5
    yield "residual", lambda: otlp.plan.residual_distribution(TINY, half)
    yield "synthetic", lambda: otlp.synthetic.generate(2, 1000).distributions(1, 0.001)
    yield "audit", lambda: otlp.audit(leviathan, TINY[::-1], otlp.IID(TINY, 1)).output


EVERYTHING = [
    pytest.param(ask, id=name)
    for name, ask in (*of_models(), *of_captures(), *of_everything_else())
]


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("ask", EVERYTHING)
def test_no_public_entry_looks_at_it(ask: Callable[[], Any]) -> None:
    wanted = ask()
    with np.errstate(all="raise"):
        found = ask()
    for one, other in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
