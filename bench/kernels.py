"""The calls whose instructions `instructions.py` counts; run by itself, it makes them.

Each is called twice first, which compiles and loads, then `CALLS` times between two calls of
`os.getppid`: marks that a counter outside the process can see.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

import otlp
from otlp import decode
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme
from otlp.solvers import make_solver

Call = Callable[[], object]

CALLS = 5


SIZE = 4096


def made_up(n: int = 4, top_k: int | None = None, size: int = SIZE) -> otlp.Problem:
    """I.i.d. drafts at a vocabulary of that size."""
    target, draft = otlp.synthetic.generate(1, size).distributions(0, top_k=top_k)
    return otlp.Problem(target, otlp.IID(draft, n))


def solve(name: str, problem: otlp.Problem, scheme: DraftScheme | None = None) -> Call:
    """Solve, certificate included."""
    if scheme is not None:
        problem = otlp.Problem(problem.target, scheme)
    return partial(make_solver(name).solve, problem)


def orderings() -> Call:
    """Orderings, for drafts without replacement."""
    problem = made_up(3, top_k=100)
    return solve("orderings", problem, otlp.WithoutReplacement(problem.drafts.draft, 3))  # type: ignore[attr-defined]


def random_ranks() -> Call:
    """Random ranks, for four drafts without replacement over the whole vocabulary."""
    problem = made_up(4)
    return solve("random-ranks", problem, otlp.WithoutReplacement(problem.drafts.draft, 4))  # type: ignore[attr-defined]


def sample_many() -> Call:
    """Verified tokens of 10,000 drafted tuples."""
    problem = made_up(4)
    plan = otlp.solve(problem).plan
    assert plan is not None
    drafted = problem.drafts.sample(np.random.default_rng(0), 10_000)
    return lambda: plan.sample_many(drafted, np.random.default_rng(1))


def verify() -> Call:
    """The verifier alone, on an answer of max-flow."""
    from otlp.certificate import certify
    from otlp.timing import Stopwatch

    problem, solver = made_up(2, top_k=100), make_solver("max-flow")
    answer = solver.answer(problem, Stopwatch())
    return lambda: certify(problem, solver.name, answer, Stopwatch())


class Unigram(decode.Model):
    """The same law after every text."""

    name, vocab_size = "unigram", SIZE

    def __init__(self, law: FloatArray) -> None:
        self.law = law

    def start(self, context: object) -> None:
        """Forget nothing: there is nothing to know."""

    def logits(self, tree: object, nodes: IntArray) -> FloatArray:
        """The law's logits at every node."""
        return np.tile(np.log(self.law), (len(nodes), 1))

    def advance(self, tree: object, node: int, token: int) -> None:
        """Stay the same."""


def tournament() -> Call:
    """A round of the tournament: four paths of one token, so one node."""
    target, draft = map(Unigram, otlp.synthetic.generate(1, SIZE).distributions(0))
    drafting, rule = decode.iid_paths(4, 1), decode.Tournament()
    return lambda: decode.play_round(draft, target, drafting, rule, np.random.default_rng(1))


KERNELS: dict[str, Callable[[], Call]] = {
    **{
        f"martingale {size}": partial(lambda v: solve("martingale", made_up(size=v)), size)
        for size in (1_000, 16_000, 128_000)
    },
    "max-flow": lambda: solve("max-flow", made_up(2, top_k=100)),
    "slackness": lambda: solve("slackness", made_up(2, top_k=100)),
    "global-resolution": lambda: solve("global-resolution", made_up(4)),
    "orderings": orderings,
    "random-ranks": random_ranks,
    "sample_many": sample_many,
    "tournament": tournament,
    "verify": verify,
}


def main(names: list[str]) -> None:
    gc.disable()  # it comes when it likes
    for name in names:
        call = KERNELS[name]()
        call()
        call()
        os.getppid()
        for _ in range(CALLS):
            call()
        os.getppid()


if __name__ == "__main__":
    main(sys.argv[1:])
