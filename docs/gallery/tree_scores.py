"""A tree and its scores: four drafted paths, the law of each one's score, and who wins."""

import numpy as np

from otlp import decode
from otlp.decode.verification.tournament import Draws, NodeState
from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import powered, root_score
from otlp.studies.canvas import figure
from otlp.studies.style import BLACK, BLUE, GREY

rng = np.random.default_rng(2)
draft, target = decode.random_pair(vocab_size=4, length=3, rng=rng)
paths = [()]
while len(set(paths)) < 4:  # four i.i.d. paths that differ, so that there is something to see
    drawn = rng.choice(64, 4, p=draft.joint(3).ravel())
    paths = sorted(zip(*np.unravel_index(drawn, (4, 4, 4)), strict=True))

state = {(): NodeState(powered(root_score(), 1 / 4), 1.0)}
for prefix in sorted({path[:i] for path in paths for i in range(3)}, key=len):
    p, q = target.distribution(prefix), draft.distribution(prefix)
    draws = Draws(state[prefix].score, 1.0, state[prefix].weight, p, q)
    for child in {path[: len(prefix) + 1] for path in paths if path[: len(prefix)] == prefix}:
        state[child] = draws.child(int(child[-1]))
chance = best_score([state[path].score for path in paths])

with figure("tree_scores.svg", 7.6, 3.6) as canvas:
    tree, laws = canvas.subplots(1, 2, width_ratios=(1.2, 1))
    places = {path[:i]: [] for path in paths for i in range(4)}
    for row, path in enumerate(paths):
        for i in range(4):
            places[path[:i]].append(-row)
    for prefix, rows in places.items():
        y = np.mean(rows)
        if prefix:
            tree.plot([len(prefix) - 1, len(prefix)], [np.mean(places[prefix[:-1]]), y],
                      color=BLUE, linewidth=0.5 + 4 * state[prefix].weight, zorder=1)  # fmt: skip
        tree.plot(len(prefix), y, "o", color=BLUE if prefix else BLACK, markersize=13)
        tree.text(len(prefix), y, prefix[-1] if prefix else "", color="white", ha="center",
                  va="center", weight="bold")  # fmt: skip
    tree.set(xlim=(-0.3, 3.3), ylim=(-3.6, 0.6), title="paths; width: block weight")
    tree.set_axis_off()
    for row, path in enumerate(paths):
        score = state[path].score
        edges = np.exp(score.edges / 4)  # of a score, not of the largest of four
        density = score.masses / np.diff(edges)
        laws.stairs(-row - 0.3 + 0.6 * density / 4, edges, baseline=-row - 0.3, fill=True,
                    color=BLUE)  # fmt: skip
        laws.axhline(-row - 0.3, color=GREY, linewidth=0.6)
        laws.text(1.03, -row - 0.2, f"wins {chance[row]:.0%}")
    laws.set(xlim=(0, 1.3), ylim=(-3.6, 0.8), yticks=[], xticks=(0, 0.5, 1), xlabel="score")
    laws.set_title("law of the score")
    laws.grid(False)
