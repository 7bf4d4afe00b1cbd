"""One row, all solvers: what each accepts, what it proves, and how long it takes."""

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import look

EXACT = ("martingale", "orderings", "max-flow", "slackness", "linear-program")
LOSSLESS = ("global-resolution", "k-seq", "recursive-rejection", "naive")

target, draft = captures.builtin().distributions(row=77, top_k=50)
problem = otlp.Problem(target, otlp.IID(draft, n=2))
names = (*LOSSLESS[::-1], *EXACT[::-1])

with figure("one_row.svg", 7.0, 3.4) as canvas:
    left, right = canvas.subplots(1, 2, sharey=True)
    for place, name in enumerate(names):
        otlp.solve(problem, name)  # compiles what is compiled
        runs = [otlp.solve(problem, name) for _ in range(3)]
        found = min(runs, key=lambda run: run.timings.plan)
        style = look(name) | {"linestyle": "none"}
        left.plot([found.acceptance, found.upper_bound], [place, place], color=style["color"])
        left.plot(found.acceptance, place, **style)
        plan, total = 1e3 * found.timings.plan, 1e3 * found.timings.total
        right.plot([plan, total], [place, place], color=style["color"])
        right.plot(plan, place, **style)
    left.set_yticks(range(len(names)), names)
    left.set_xlabel("acceptance\n(the line: up to the proven bound)")
    right.set(xlabel="milliseconds of the plan\n(the line: with its certificate)", xscale="log")
