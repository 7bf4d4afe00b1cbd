"""Easy and hard places: how the optimal acceptance is spread over the places of many texts."""

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREEN, PINK

capture = captures.builtin()
pairs = [capture.distributions(row) for row in range(len(capture))]
share = (np.arange(len(pairs)) + 0.5) / len(pairs)

with figure("easy_and_hard.svg", 6.4, 3.4) as canvas:
    axes = canvas.subplots()
    for n, colour in ((1, BLUE), (4, GREEN), (16, PINK)):
        problems = [otlp.Problem(p, otlp.IID(q, n)) for p, q in pairs]
        found = np.sort([otlp.optimal_acceptance(problem) for problem in problems])
        middle = round(len(pairs) * 0.45)
        axes.plot(share, found, color=colour)
        axes.annotate(f"n = {n}", (share[middle], found[middle]), (-4, 4), color=colour,
                      textcoords="offset points", ha="right")  # fmt: skip
    axes.set(xlabel="part of the places", ylabel="optimal acceptance")
    axes.set(xlim=(0, 1), ylim=(0, 1.03))
