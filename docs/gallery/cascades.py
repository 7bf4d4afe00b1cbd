"""Cascades: what is accepted more, if the text may leave the target, and what that costs."""

import numpy as np
from scipy.special import rel_entr

from otlp import synthetic
from otlp.decode import cascades as c
from otlp.studies.canvas import figure
from otlp.studies.style import look

FAMILIES = {
    "lossy": (c.Lossy, np.linspace(0, 0.95, 12)),
    "token-v3": (lambda a: c.TokenCascade(c.TokenV3(a)), np.linspace(0, 0.999, 12)),
    "opt": (lambda a: c.Cascade(c.Opt(a)), np.linspace(0, 1, 12)),
    "chow": (lambda a: c.Cascade(c.Chow(a)), np.linspace(0, 1, 12)),
}

capture = synthetic.generate(40, 4096)
pairs = [capture.distributions(row) for row in range(len(capture))]

with figure("cascades.svg", 6.4, 3.6) as canvas:
    axes = canvas.subplots()
    for name, (make, thresholds) in FAMILIES.items():
        points = []
        for threshold in thresholds:
            aims = [make(threshold)(q, p) for p, q in pairs]
            rows = list(zip(aims, pairs, strict=True))
            accepted = np.mean([np.minimum(t, q).sum() for t, (_, q) in rows])
            lost = np.mean([rel_entr(p, np.maximum(t, 1e-300)).sum() for t, (p, _) in rows])
            points.append((accepted, lost))
        axes.plot(*zip(*points, strict=True), label=name, **look(name))
    axes.set(xlabel="acceptance of one draft", ylabel="log-likelihood lost, nats a token")
    axes.legend()
