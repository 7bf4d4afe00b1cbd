"""Acceptance of each rule for your own logits, and tokens verified by the best rule.

python own_logits.py
"""

import numpy as np

import otlp
from otlp.solvers.table import SolverName

RULES: tuple[SolverName, ...] = ("naive", "recursive-rejection", "k-seq", "martingale")


def main() -> None:
    """Solve, compare, and verify."""
    rng = np.random.default_rng(0)
    target_logits = rng.normal(scale=3.0, size=1000)  # logits of your large model
    draft_logits = target_logits + rng.normal(size=1000)  # logits of your small model
    p, q = otlp.softmax(target_logits), otlp.softmax(draft_logits)
    problem = otlp.Problem(p, otlp.IID(q, n=4))
    for rule in RULES:
        print(f"{rule:20} accepts {otlp.solve(problem, rule).acceptance:.4f}")
    best: float = otlp.optimal_acceptance(problem)
    print(f"no rule accepts more than {best:.4f}")
    few = otlp.Problem(otlp.softmax(target_logits[:6]), otlp.IID(otlp.softmax(draft_logits[:6]), 2))
    exact = otlp.solve(few, "linear-program", time_limit=60.0, throw=False)
    print(exact.status.name, exact.message)
    plan = otlp.solve(problem).plan
    assert plan is not None
    drafted = problem.drafts.sample(rng, 5)
    print("drafted", drafted.tolist())
    print("verified", plan.sample_many(drafted, rng).tolist())


if __name__ == "__main__":
    main()
