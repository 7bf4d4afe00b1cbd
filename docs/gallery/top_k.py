"""Top-k and acceptance: what a cut of the draft to its k likeliest tokens costs."""

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREEN, ORANGE, RED

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1500)

capture = captures.builtin()[::4]
with figure("top_k.svg", 6.4, 3.4) as canvas:
    axes = canvas.subplots()
    for n, colour in ((1, BLUE), (2, RED), (4, GREEN), (8, ORANGE)):
        means = []
        for k in SIZES:
            pairs = [capture.distributions(row, top_k=k) for row in range(len(capture))]
            problems = [otlp.Problem(p, otlp.IID(q, n)) for p, q in pairs]
            means.append(np.mean([otlp.optimal_acceptance(problem) for problem in problems]))
        best = int(np.argmax(means))
        axes.plot(SIZES, means, color=colour)
        axes.plot(SIZES[best], means[best], "o", color=colour, markersize=7)
        axes.annotate(f"n = {n}", (SIZES[-1], means[-1]), (7, 0), textcoords="offset points",
                      color=colour, va="center")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES[::2], SIZES[::2])
    axes.set(xlabel="k, tokens kept of the draft", ylabel="mean optimal acceptance", ylim=(0, 1))
    axes.set_xlim(0.8, 3500)
