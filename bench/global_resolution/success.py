"""Success rates of Tables 1 and 3: how often the published method solves its systems.

    python bench/global_resolution/success.py

"A tuple" is the paper's rate: the system of the drafted tuple is solved, here on average over all
tuples of all captured rows.  "Both" is a whole plan.  Failures of a system are: more variables than
Appendix K allows, or no convergence in its 25 iterations from zero.  The time is the processor time
for one drafted tuple: the minimum of five runs, the median over 40 rows, solved or not.
"""

from __future__ import annotations

import cases
import click
import numpy as np
from limits import in_processor_time
from rich.table import Table
from times import SIZES, SUCCESS

import otlp
from otlp import Guarantee, Status
from otlp.data.captures import builtin
from otlp.solution import SolveError
from otlp.solvers import GlobalResolution
from otlp.solvers.prepared import Prepared


def chances(problem: otlp.Problem, tau: float) -> tuple[float, bool, list[Status]]:
    """Return the probability that the tuple's system is solved, whether both are, and failures."""
    plan = GlobalResolution.published(tau).prepare(problem, Guarantee.APPROXIMATE)
    assert isinstance(plan, Prepared)
    chance, failed = 0.0, []
    for name, side in (("outer", plan.sides.outer), ("inner", plan.sides.inner)):
        try:
            getattr(plan, name)
            chance += side.mass
        except SolveError as error:
            failed.append(error.solution.status)
    return chance, not failed, failed


@click.command(help=__doc__)
def main() -> None:
    capture, found = builtin(), []
    made = Table("(k, n)", "tau", "a tuple", "paper", "both", "too large", "not converged", "ms")
    made.title = f"Success, percent; failures of systems: {cases.describe(capture, len(capture))}"
    for at, (k, n) in enumerate(SIZES):
        problems = list(cases.problems(capture, range(len(capture)), k, n))
        for tau in cases.TAUS:
            runs = [chances(problem, tau) for problem in problems]
            failed = [status for _, _, some in runs for status in some]
            timed = in_processor_time(cases.conditional_of("", GlobalResolution.published(tau)))
            some = [problems[row] for row in cases.spread(capture, 40)]
            taken = [min(timed.run(one).seconds for _ in range(5)) for one in some]
            row = {
                "ms": 1e3 * float(np.median(taken)),
                "tuple": 100.0 * float(np.mean([chance for chance, _, _ in runs])),
                "both": 100.0 * float(np.mean([both for _, both, _ in runs])),
                "too_large": failed.count(Status.TRUNCATION_LIMIT),
                "not_converged": failed.count(Status.ITERATION_LIMIT),
            }
            found.append({"k": k, "n": n, "tau": tau, **row})
            paper = " / ".join(f"{rate:g}" for rate in SUCCESS[f"tau {tau:g}"][at])
            texts = f"{row['tuple']:.1f}", paper, f"{row['both']:.1f}"
            counts = str(row["too_large"]), str(row["not_converged"]), cases.shown(row["ms"])
            made.add_row(str((k, n)), f"{tau:g}", *texts, *counts)
    cases.console.print(made)
    cases.write("success", {"rows": len(capture), "success": found})


if __name__ == "__main__":
    main()
