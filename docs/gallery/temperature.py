"""Temperature: optimal acceptance where both models sample hotter and colder."""

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.estimate import ratio
from otlp.studies.style import BLUE, GREEN, ORANGE, RED

TEMPERATURES, COUNTS = (0.2, 0.4, 0.6, 0.8, 1.0), {1: BLUE, 2: RED, 4: GREEN, 8: ORANGE}

capture = captures.builtin()
texts = capture.passages - 1  # rows of one text are no independent units


def optimum(row, temperature, n):
    """Largest acceptance of any rule at this row."""
    p, q = capture.distributions(row, temperature=temperature)
    return otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, n)))


with figure("temperature.svg", 6.4, 3.4) as canvas:
    axes = canvas.subplots()
    for n, colour in COUNTS.items():
        means = []
        for temperature in TEMPERATURES:
            found = np.array([optimum(row, temperature, n) for row in range(len(capture))])
            means.append(ratio(np.bincount(texts, found), np.bincount(texts)))
        axes.fill_between(TEMPERATURES, [m.low for m in means], [m.high for m in means],
                          color=colour, alpha=0.15, linewidth=0)  # fmt: skip
        axes.plot(TEMPERATURES, [m.mean for m in means], color=colour)
        axes.annotate(f"n = {n}", (TEMPERATURES[-1], means[-1].mean), (6, 0),
                      textcoords="offset points", color=colour, va="center")  # fmt: skip
    axes.set(xlabel="temperature of both models", ylabel="mean optimal acceptance")
    axes.set(xlim=(0.17, 1.1), ylim=(0, 1))
