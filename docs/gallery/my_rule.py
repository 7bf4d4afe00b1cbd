"""My rule against the optimum: a plan of one's own, certified and compared on random problems."""

import numpy as np

import otlp
from otlp.studies.canvas import figure
from otlp.studies.style import BLACK, GREEN, look


class Neediest(otlp.Plan):
    """Take the drafted token with the largest p/q, and test it as a single draft."""

    def __init__(self, problem):
        super().__init__(problem)
        p, q = problem.target, problem.drafts.mean_draft
        self.order = np.argsort(-p / q)
        tail = 1.0 - np.cumsum(np.append(0.0, q[self.order])).clip(0.0, 1.0)
        self.picked = np.empty_like(q)  # probability that a token is the one taken
        self.picked[self.order] = tail[:-1] ** problem.n - tail[1:] ** problem.n

    def conditional(self, draft_tokens):
        p, picked = self.problem.target, self.picked
        token = next(i for i in self.order if i in draft_tokens)
        keep, left = min(1.0, p[token] / picked[token]), np.maximum(p - picked, 0.0)
        law = (1.0 - keep) * (left / left.sum() if left.any() else p)
        law[token] += keep
        return law


class Mine(otlp.Solver):
    name = "mine"

    def answer(self, problem, clock):
        return otlp.Answer(Neediest(problem))


OTHER, found = "recursive-rejection", []
rng = np.random.default_rng(0)
for _ in range(60):
    p, q = otlp.softmax(rng.normal(size=(2, 6)) * rng.uniform(0.5, 2.0))
    problem = otlp.Problem(p, otlp.IID(q, n=3))
    mine, other = otlp.solve(problem, Mine()), otlp.solve(problem, OTHER)
    assert mine.guarantee >= otlp.Guarantee.LOSSLESS
    found.append((mine.upper_bound, mine.acceptance, other.acceptance))

optimum, *reached = np.array(found).T
with figure("my_rule.svg", 5.6, 4.0) as canvas:
    axes = canvas.subplots()
    axes.plot([0, 1], [0, 1], color=BLACK, linewidth=0.8)
    axes.plot(optimum, reached[0], "*", color=GREEN, label="mine")
    axes.plot(optimum, reached[1], label=OTHER, **look(OTHER) | {"linestyle": "none"})
    axes.set(xlabel="optimal acceptance", ylabel="acceptance of the rule")
    axes.legend()
