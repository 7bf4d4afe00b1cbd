"""Acceptance over a text, token by token."""

from itertools import pairwise

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREEN, PINK

capture = captures.builtin()[96:112]  # one passage, row after row
contexts = [row.context for row in capture]
tokens = [after[len(before) :] for before, after in pairwise(contexts)]
rows = np.arange(len(tokens))

with figure("token_by_token.svg", 7.2, 3.4) as canvas:
    axes = canvas.subplots()
    for n, colour, marker in ((1, BLUE, "o"), (4, GREEN, "^"), (16, PINK, "D")):
        found = []
        for row in rows:
            p, q = capture.distributions(int(row))
            found.append(otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, n))))
        axes.plot(rows, found, color=colour, marker=marker, linewidth=0.8)
        axes.annotate(f"n = {n}", (rows[-1], found[-1]), (7, 0), textcoords="offset points",
                      color=colour, va="center")  # fmt: skip
    axes.set_xticks(rows, [repr(token)[1:-1] for token in tokens], rotation=60, parse_math=False)
    axes.set(ylim=(0, 1.03), xlim=(-0.5, len(rows) + 0.7), ylabel="optimal acceptance")
    axes.set_xlabel("the token that the text has there")
