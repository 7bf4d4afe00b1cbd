"""Audit of a wrong rule: accept each draft in turn, and forget what was accepted before."""

import numpy as np

import otlp
from otlp.studies.canvas import figure
from otlp.studies.style import BLUE, GREY, RED


def each_in_turn(draft_tokens, p, q, rng):
    """Test every draft against the whole target."""
    for token in draft_tokens:
        if rng.random() < p[token] / q[token]:
            return token
    left = np.maximum(p - q, 0.0)
    return rng.choice(len(p), p=left / left.sum())


target = np.array([0.08, 0.12, 0.15, 0.15, 0.20, 0.30])
draft = np.array([0.30, 0.05, 0.25, 0.10, 0.20, 0.10])
counts, errors = range(1, 5), []
for n in counts:
    report = otlp.audit(each_in_turn, target, otlp.IID(draft, n))
    errors.append(report.total_variation)
    assert report.verdict.passed == (n == 1)

with figure("wrong_rule.svg", 7.2, 3.2) as canvas:
    law, error = canvas.subplots(1, 2, width_ratios=(1.5, 1))
    tokens = np.arange(target.size)
    law.bar(tokens - 0.2, target, 0.38, color=GREY, label="target")
    law.bar(tokens + 0.2, report.output, 0.38, color=RED, label=f"output, n = {n}")
    law.set(xlabel="token", ylabel="probability", xticks=tokens)
    law.legend(loc="upper left")
    error.plot(counts, errors, "o-", color=BLUE)
    error.set(xlabel="n, number of drafts", ylabel="total variation, exact", xticks=counts)
    error.set_ylim(bottom=-0.005)
