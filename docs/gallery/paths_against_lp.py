"""Paths against the linear program: what multi-path rules leave of the best block efficiency."""

import numpy as np

from otlp import decode
from otlp.studies.canvas import figure
from otlp.studies.estimate import ratio
from otlp.studies.style import look
from otlp_lab.laws.prefix_laws import prefix_law

RULES = ("two-slice", "greedy-multipath", "traversal", "optimal", "recursive-rejection")
PATHS, PAIRS = (1, 2, 3), 6

short = {rule: np.zeros((len(PATHS), PAIRS)) for rule in RULES}
for seed in range(PAIRS):
    draft, target = decode.random_pair(vocab_size=3, length=3, rng=np.random.default_rng(seed))
    for place, paths in enumerate(PATHS):
        best = decode.multipath_optimum(draft, target, paths, 2)
        for rule in RULES:
            law = prefix_law(draft, target, decode.iid_paths(paths, 2), decode.ALGORITHMS[rule])
            short[rule][place, seed] = 100 * (1 - law.block_efficiency / best)

with figure("paths_against_lp.svg", 7.2, 3.4) as canvas:
    axes = canvas.subplots()
    for offset, rule in enumerate(RULES):
        means = [ratio(row, np.ones(PAIRS)) for row in short[rule]]
        axes.errorbar([paths + 0.06 * (offset - 2) for paths in PATHS], [m.mean for m in means],
                      [m.high - m.mean for m in means], label=rule, **look(rule))  # fmt: skip
    axes.set(xlabel="K, number of paths", ylabel="below the optimum, %", xticks=PATHS)
    canvas.legend(loc="outside right center")
