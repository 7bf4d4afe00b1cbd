"""Which n pays: tokens for the price of a target call, if each drafted token has a price too."""

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREEN, ORANGE, RED

COUNTS, PRICES = np.arange(1, 17), {0.005: BLUE, 0.02: GREEN, 0.05: ORANGE, 0.1: RED}

capture = captures.builtin()[::4]
pairs = [capture.distributions(row) for row in range(len(capture))]
accepted = np.array([
    np.mean([otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, int(n)))) for p, q in pairs])
    for n in COUNTS
])  # fmt: skip

with figure("which_n.svg", 6.4, 3.4) as canvas:
    axes = canvas.subplots()
    for price, colour in PRICES.items():
        tokens = (1.0 + accepted) / (1.0 + price * COUNTS)
        best = int(tokens.argmax())
        axes.plot(COUNTS, tokens, color=colour)
        axes.plot(COUNTS[best], tokens[best], "o", color=colour, markersize=7)
        axes.annotate(f"{price:g} a token", (16, tokens[-1]), (6, 0), textcoords="offset points",
                      color=colour, va="center")  # fmt: skip
    axes.set(xlabel="n, number of drafts", ylabel="tokens for the price of a call")
    axes.set(xlim=(0.5, 19.5), xticks=COUNTS[::3])
