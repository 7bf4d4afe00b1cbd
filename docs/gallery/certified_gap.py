"""The gap of a certificate: bound and acceptance close in while `orderings` mixes more orders."""

import numpy as np

import otlp
from otlp.solvers import Orderings
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, ORANGE, RED

rng = np.random.default_rng(1)
p, *drafts = otlp.softmax(rng.normal(size=60) + 0.6 * rng.normal(size=(4, 60)))
SCHEMES = {
    "i.i.d.": (otlp.IID(drafts[0], 3), BLUE, "o"),
    "different drafts": (otlp.Independent(drafts), ORANGE, "D"),
    "without replacement": (otlp.WithoutReplacement(drafts[0], 3), RED, "s"),
}

with figure("certified_gap.svg", 6.4, 3.4) as canvas:
    axes = canvas.subplots()
    for label, (scheme, colour, marker) in SCHEMES.items():
        problem, points = otlp.Problem(p, scheme), set()
        for digits in np.arange(1, 9, 0.5):
            solution = Orderings(gap=10.0**-digits).solve(problem)
            points.add((solution.details["iterations"], max(solution.gap, 1e-12)))
        axes.plot(*zip(*sorted(points), strict=True), color=colour, marker=marker, label=label)
    axes.axhline(1e-6, color="black", linestyle=":", linewidth=0.8)
    axes.annotate("OPTIMAL below", (0.4, 1e-6), (4, -11), xycoords=("axes fraction", "data"),
                  textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.set(yscale="log", xlabel="steps, an ordering each", ylabel="bound minus acceptance")
    axes.legend()
