"""Calls whose instructions `instructions.py` counts; run as a script to make the calls.

Each function is called twice to compile and load code, then `CALLS` times between two calls of
`os.getppid`, which a counter outside the process can see.
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


def synthetic(n: int = 4, top_k: int | None = None, size: int = SIZE) -> otlp.Problem:
    """Return a synthetic problem with i.i.d. drafts and vocabulary `size`."""
    target, draft = otlp.synthetic.generate(1, size).distributions(0, top_k=top_k)
    return otlp.Problem(target, otlp.IID(draft, n))


def solve(name: str, problem: otlp.Problem, scheme: DraftScheme | None = None) -> Call:
    """Return a solve, including the certificate."""
    if scheme is not None:
        problem = otlp.Problem(problem.target, scheme)
    return partial(make_solver(name).solve, problem)


def orderings() -> Call:
    """Return a solve with orderings, for drafts without replacement."""
    problem = synthetic(3, top_k=100)
    return solve("orderings", problem, otlp.WithoutReplacement(problem.drafts.draft, 3))  # type: ignore[attr-defined]


def random_ranks() -> Call:
    """Return a solve with random ranks for four drafts without replacement, whole vocabulary."""
    problem = synthetic(4)
    return solve("random-ranks", problem, otlp.WithoutReplacement(problem.drafts.draft, 4))  # type: ignore[attr-defined]


def random_weights() -> Call:
    """Return a solve with random weights for three drafts of different temperatures."""
    capture = otlp.synthetic.generate(1, SIZE)
    target = capture.distributions(0)[0]
    drafts = [capture.distributions(0, temperature=t)[1] for t in (0.6, 1.0, 1.5)]
    return solve("random-weights", otlp.Problem(target, otlp.Independent(drafts)))


def sample_many() -> Call:
    """Return the sampling of verified tokens of 10,000 drafted tuples."""
    problem = synthetic(4)
    plan = otlp.solve(problem).plan
    assert plan is not None
    drafted = problem.drafts.sample(np.random.default_rng(0), 10_000)
    return lambda: plan.sample_many(drafted, np.random.default_rng(1))


def verify() -> Call:
    """Return the verifier without the solver, on an answer of max-flow."""
    from otlp.certificate import certify
    from otlp.timing import Stopwatch

    problem, solver = synthetic(2, top_k=100), make_solver("max-flow")
    answer = solver.answer(problem, Stopwatch())
    return lambda: certify(problem, solver.name, answer, Stopwatch())


class Unigram(decode.Model):
    """Model with the same distribution after every text."""

    name, vocab_size = "unigram", SIZE

    def __init__(self, law: FloatArray) -> None:
        self.law = law

    def start(self, context: object) -> None:
        """Do nothing: the model has no state."""

    def logits(self, tree: object, nodes: IntArray) -> FloatArray:
        """Return the logits of the distribution at every node."""
        return np.tile(np.log(self.law), (len(nodes), 1))

    def advance(self, tree: object, node: int, token: int) -> None:
        """Do nothing."""


def tournament() -> Call:
    """Return a round of the tournament with four paths of one token (one node)."""
    target, draft = map(Unigram, otlp.synthetic.generate(1, SIZE).distributions(0))
    drafting, rule = decode.iid_paths(4, 1), decode.Tournament()
    return lambda: decode.play_round(draft, target, drafting, rule, np.random.default_rng(1))


KERNELS: dict[str, Callable[[], Call]] = {
    **{
        f"martingale {size}": partial(lambda v: solve("martingale", synthetic(size=v)), size)
        for size in (1_000, 16_000, 128_000)
    },
    "max-flow": lambda: solve("max-flow", synthetic(2, top_k=100)),
    "slackness": lambda: solve("slackness", synthetic(2, top_k=100)),
    "global-resolution": lambda: solve("global-resolution", synthetic(4)),
    "orderings": orderings,
    "random-ranks": random_ranks,
    "random-weights": random_weights,
    "sample_many": sample_many,
    "tournament": tournament,
    "verify": verify,
}


def main(names: list[str]) -> None:
    gc.disable()  # garbage collection would add instructions at random times
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
