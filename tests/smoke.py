"""A few calls that must work wherever the package is installed; run as a script."""

import numpy as np

import otlp
from otlp.data import captures


def main() -> None:
    capture = captures.builtin()
    target, draft = capture.distributions(0)
    problem = otlp.Problem(target, otlp.IID(draft, n=4))
    solution = otlp.solve(problem)
    assert solution.guarantee is otlp.Guarantee.OPTIMAL, solution
    assert solution.plan is not None
    rng = np.random.default_rng(0)
    draft_tokens = problem.drafts.sample(rng)
    assert abs(solution.plan.conditional(draft_tokens).sum() - 1.0) < 1e-12
    assert 0 <= solution.plan.sample(draft_tokens, rng) < problem.vocab_size
    print(f"otlp {otlp.__version__}: {solution}")


if __name__ == "__main__":
    main()
