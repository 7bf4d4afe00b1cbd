"""Where the published method fails: rows that global resolution answers, over the top-k size."""

import numpy as np

import otlp
from otlp import captures
from otlp.solvers import GlobalResolution
from otlp.studies.canvas import figure
from otlp.studies.style import look

SIZES, ROWS = (10, 20, 50, 100, 200, 500, 1000), 20
HOLLOW = {"markerfacecolor": "white", "linestyle": "--"}
METHODS = {
    "as published, tau = 1e-3": (GlobalResolution.published(1e-3), HOLLOW),
    "as published, tau = 1e-4": (GlobalResolution.published(1e-4), HOLLOW | {"markersize": 8}),
    "here, tau = 1e-4": (GlobalResolution(1e-4), {"markersize": 8}),
}

capture = captures.builtin()[::8]
with figure("published_limits.svg", 8.0, 3.4) as canvas:
    share, error = canvas.subplots(1, 2)
    for label, (solver, changes) in METHODS.items():
        style, solved, worst = look("global-resolution") | changes, [], []
        for k in SIZES:
            pairs = [capture.distributions(row, top_k=k) for row in range(ROWS)]
            found = [solver.solve(otlp.Problem(p, otlp.IID(q, 2))) for p, q in pairs]
            planned = [one.marginal_error for one in found if one.plan is not None]
            solved.append(100 * len(planned) / ROWS)
            worst.append(max(planned, default=np.nan))
        share.plot(SIZES, solved, **style)
        error.plot(SIZES, worst, label=label, **style)
    share.set(xscale="log", xlabel="top-k size of the draft", ylabel="rows answered, %")
    share.set_ylim(-4, 104)
    error.set(xscale="log", yscale="log", xlabel="top-k size of the draft")
    error.set_ylabel("largest error of the output, L1")
    for axes in (share, error):
        axes.set_xticks((10, 100, 1000), ("10", "100", "1000"))
    canvas.legend(loc="outside upper center", ncols=3)
