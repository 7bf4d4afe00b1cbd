"""Independent or different drafts: what the way of drafting allows, over n."""

import numpy as np

import otlp
from otlp import captures
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREEN, RED

SCHEMES = {
    "without replacement": (otlp.WithoutReplacement, RED, "s"),
    "top n - 1, one drawn": (otlp.Greedy, GREEN, "P"),
    "i.i.d.": (otlp.IID, BLUE, "o"),
}
COUNTS, SHOWN = (1, 2, 3, 4, 6, 8), {0.3: "temperature 0.3", 1.0: "temperature 1"}

capture = captures.builtin()[::8]
with figure("siblings.svg", 7.6, 3.2) as canvas:
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, (temperature, title) in zip(panels, SHOWN.items(), strict=True):
        pairs = [capture.distributions(row, temperature) for row in range(len(capture))]
        for label, (scheme, colour, marker) in SCHEMES.items():
            means = [
                np.mean([otlp.optimal_acceptance(otlp.Problem(p, scheme(q, n)))
                         for p, q in pairs])
                for n in COUNTS
            ]  # fmt: skip
            axes.plot(COUNTS, means, color=colour, marker=marker, label=label)
        axes.set(title=title, xlabel="n, number of drafts", xticks=COUNTS)
    panels[0].set(ylabel="mean optimal acceptance", ylim=(0, 1))
    panels[1].legend(loc="lower right")
