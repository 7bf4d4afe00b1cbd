"""Remake the figures of these pages, all of them or those named.

    python docs/figures/remake.py [NAME ...]

Measured figures are drawn from the numbers that their benchmarks stored in `bench/`; the commands
that measure are in the captions.  The others are computed here, but for `architecture.svg`, which
is drawn by hand.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Callable
from contextlib import chdir
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "bench" / "global_resolution")]

import otlp
from otlp import captures
from otlp.decode.cascades import Lossy, TokenCascade, TokenV3
from otlp.numerics import ratio_bins
from otlp.numerics.power_slope import power_slope
from otlp.solvers.score_plan import GAIN, MEAN, RISE, START
from otlp.studies import lossy_rules
from otlp.studies.canvas import figure
from otlp.studies.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, look

P, Q = np.array([0.1, 0.6, 0.3]), np.array([0.5, 0.3, 0.2])
"""The three tokens of the tutorial."""

TOKENS = (BLUE, RED, GREEN, ORANGE, PINK, SKY)


def stored(name: str) -> Any:
    return json.loads((ROOT / "bench" / name).read_text(encoding="utf-8"))


def flow() -> None:
    """The relaxed program of the tutorial as a maximum flow."""
    sets = otlp.IID(Q, 2).enumerate_sets()
    plan = otlp.solve(otlp.Problem(P, otlp.IID(Q, 2)), "max-flow").plan
    ends = zip(sets.offsets, sets.offsets[1:], strict=False)
    groups = [tuple(int(i) for i in sets.members[a:b]) for a, b in ends]
    heights = {j: 5.0 - k for k, j in enumerate(sorted(range(len(groups)), key=groups.__getitem__))}
    tokens, sent = {0: 4.5, 1: 2.4, 2: 0.4}, np.zeros(3)
    with figure(FOLDER / "flow.svg", 7.0, 3.6) as canvas:
        axes = canvas.subplots()
        axes.set_axis_off()
        axes.set(xlim=(-1.6, 3.7), ylim=(-0.4, 5.9))
        for j, y in heights.items():
            given = plan.conditional((groups[j] * 2)[:2]) * sets.mass[j]
            given = {i: min(given[i], P[i]) for i in groups[j]}
            cut = {"color": GREY, "lw": 1.0} if groups[j] == (0,) else {"color": BLACK, "lw": 2.6}
            for i, mass in given.items():
                colour = TOKENS[i] if mass > 1e-9 else GREY
                axes.plot([0, 2], [tokens[i], y], color=colour, lw=0.6 + 12 * mass, alpha=0.8)
                sent[i] += mass
            axes.plot([2, 3.6], [y, y], **cut)
            name = "{" + ", ".join(map(str, groups[j])) + "}"
            axes.text(2.1, y + 0.12, name)
            axes.text(3.6, y + 0.12, f"{sum(given.values()):.2f} / {sets.mass[j]:.2f}", ha="right")
        for token, y in tokens.items():
            cut = {"color": BLACK, "lw": 2.6} if token == 0 else {"color": GREY, "lw": 1.0}
            axes.plot([-1.5, 0], [y, y], **cut)
            axes.text(-0.85, y + 0.12, f"{sent[token]:.2f} / {P[token]:.2f}", ha="center")
            axes.plot(0, y, "o", color=TOKENS[token], markersize=13)
            axes.text(0, y, str(token), color="white", ha="center", va="center", weight="bold")
        axes.text(-1.5, 5.65, "target: flow / p")
        axes.text(3.6, 5.65, "drafted set: flow / mass", ha="right")


def prefix_bound() -> None:
    """The bound of every prefix of the tokens, over q of the prefix."""
    target, draft = captures.builtin().distributions(row=28)
    order = np.argsort(target / np.maximum(draft, 1e-300), kind="stable")
    p, q = np.r_[0, np.cumsum(target[order])], np.r_[0, np.cumsum(draft[order])]
    with figure(FOLDER / "prefix_bound.svg", 6.0, 3.4) as canvas:
        axes = canvas.subplots()
        keep = np.unique(np.searchsorted(q, np.linspace(0, 1, 400)).clip(0, q.size - 1))
        for n, colour in zip((1, 2, 4, 8), (BLUE, RED, GREEN, ORANGE), strict=True):
            bound = 1 + p - q**n
            best = int(np.argmin(bound))
            shown = np.union1d(keep, [best])
            axes.plot(q[shown], bound[shown], color=colour)
            axes.plot(q[best], bound[best], "o", color=colour, markersize=7)
            axes.annotate(f"n = {n}: {bound[best]:.3f}", (1.0, bound[best]), (5, 0),
                          textcoords="offset points", color=colour, va="center")  # fmt: skip
        axes.set(xlabel="q(H), H a prefix in p / q", ylabel="bound 1 + p(H) - q(H)^n")
        axes.set(xlim=(-0.04, 1.25), xticks=np.linspace(0, 1, 6))
        axes.set_ylim(bottom=axes.get_ylim()[0] - 0.05)


def score_cells() -> None:
    """Where the scores of six tokens lie, before and after the swaps."""
    p = np.array([0.04, 0.10, 0.10, 0.20, 0.16, 0.40])
    q = np.array([0.20, 0.22, 0.15, 0.18, 0.15, 0.10])
    n = 3
    print("score_cells: p =", p.tolist(), "q =", q.tolist(), "n =", n)
    plan = otlp.solve(otlp.Problem(p, otlp.IID(q, n)), "martingale").plan
    y = plan.realised_selection_distribution()
    order = np.argsort(y / q, kind="stable")
    edges = np.r_[0, np.cumsum(q[order])]
    edges[-1] = 1.0
    means = np.array([power_slope(a, b, n) for a, b in pairwise(edges)])
    mass = np.diag(np.diff(edges))  # of token (row) on cell (column)
    need = q[order] * (y[order] / q[order] - means)
    later = [b for b in range(6) if need[b] < 0]
    for a in range(6):
        for b in later:
            if b > a and need[a] > 1e-15 and need[b] < -1e-15:
                x = min(need[a], -need[b])
                swapped = x / (means[b] - means[a])
                mass[a, a] -= swapped
                mass[a, b] += swapped
                mass[b, b] -= swapped
                mass[b, a] += swapped
                need[a] -= x
                need[b] += x
    bold = {"color": "white", "ha": "center", "va": "center", "weight": "bold"}
    with figure(FOLDER / "score_cells.svg", 6.6, 4.4) as canvas:
        before, after, below = canvas.subplots(3, 1, sharex=True, height_ratios=(1, 1, 1))
        for axes, table, title in (
            (before, np.diag(np.diff(edges)), "before"),
            (after, mass, "after"),
        ):
            for cell, (left, right) in enumerate(pairwise(edges)):
                bottom = 0.0
                for token in range(6):
                    share = table[token, cell] / (right - left)
                    axes.bar((left + right) / 2, share, right - left, bottom, color=TOKENS[token])
                    if share * (right - left) > 0.012:
                        axes.text((left + right) / 2, bottom + share / 2, "abcdef"[token], **bold)
                    bottom += share
            axes.set(yticks=[], ylabel=title)
            axes.grid(False)
        u = np.linspace(0, 1, 200)
        below.plot(u, n * u ** (n - 1), color=BLACK)
        below.set(xlabel="score u", ylabel="W", xlim=(0, 1), ylim=(0, n))


def ratio_cells() -> None:
    """Cells of 2,000 made-up tokens in bins of an eighth of an octave, and W."""
    n, rng = 4, np.random.default_rng(0)
    target, draft = rng.dirichlet(np.ones(2_000), 2)
    before = ratio_bins.SPARED_BITS
    ratio_bins.SPARED_BITS = target.size.bit_length() // 2 - 3
    plan = otlp.solve(otlp.Problem(target, otlp.IID(draft, n)), "martingale").plan
    ratio_bins.SPARED_BITS = before
    _, cell, mass = plan.score_masses()
    groups = plan.laws.groups
    edges = np.concatenate(([0.0], np.cumsum(np.bincount(cell, mass, len(groups)))))
    level = groups[:, MEAN] + groups[:, RISE]
    shared = groups[:, GAIN] != 0.0
    top = np.append(groups[1:, START], level[-1])
    print("ratio_cells: groups", len(groups), "of them bins", int(shared.sum()))
    with figure(FOLDER / "ratio_cells.svg", 6.6, 3.2) as canvas:
        axes = canvas.subplots()
        for g, (left, right) in enumerate(pairwise(edges)):
            if shared[g]:
                low, high = groups[g, START], top[g]
                axes.fill_between([left, right], low, high, color=SKY, lw=0.0)
            axes.plot([left, right], [level[g]] * 2, color=BLUE if shared[g] else RED, lw=1.6)
        u = np.linspace(0.0, 1.0, 200)
        axes.plot(u, n * u ** (n - 1), color=BLACK, lw=1.0)
        axes.text(0.9, 3.25, "W", color=BLACK, ha="right")
        axes.set(xlabel="score u", ylabel="y / q", xlim=(0, 1), ylim=(0, 1.15 * level[-1]))


def polytope() -> None:
    """The selections of three tokens, with priority orderings at the corners."""
    corners = np.array([[1.0, 0.0], [0.0, 0.0], [0.5, np.sqrt(0.75)]])
    place = lambda y: np.asarray(y) @ corners  # noqa: E731

    def ordering(order: tuple[int, ...]) -> np.ndarray[Any, Any]:
        y, rest = np.zeros(3), 1.0
        for token in order:
            y[token] = rest**2 - max(rest - Q[token], 0.0) ** 2
            rest -= Q[token]
        return y

    vertices = {order: ordering(order) for order in permutations(range(3))}
    centre = np.mean([place(v) for v in vertices.values()], axis=0)
    ring = sorted(vertices, key=lambda o: np.arctan2(*(place(vertices[o]) - centre)[::-1]))
    selected = np.array([0.25, 0.45, 0.30])
    with figure(FOLDER / "polytope.svg", 6.0, 4.6) as canvas:
        axes = canvas.subplots()
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.fill(*corners[[0, 1, 2]].T, facecolor="none", edgecolor=GREY, lw=0.8)
        for token, (x, y) in enumerate(corners):
            axes.text(
                x,
                y + (0.03 if token == 2 else -0.06),
                f"only token {token}",
                ha="center",
                color=GREY,
            )
        axes.fill(*np.array([place(vertices[o]) for o in ring]).T, color=SKY, alpha=0.35, lw=0)
        for order in ring:
            x, y = place(vertices[order])
            away = (np.array([x, y]) - centre) / np.linalg.norm(np.array([x, y]) - centre)
            axes.plot(x, y, "s", color=BLUE)
            axes.text(x + 0.035 * away[0], y + 0.035 * away[1], ">".join(map(str, order)),
                      color=BLUE,
                      ha="left" if away[0] > 0.3 else "right" if away[0] < -0.3 else "center",
                      va="bottom" if away[1] > 0 else "top")  # fmt: skip
        axes.plot(*zip(place(P), place(selected), strict=True), color=RED, ls=":")
        for name, y, colour, side in (
            ("p", P, RED, -1),
            ("y", selected, RED, 1),
            ("q", Q, BLACK, 1),
        ):
            axes.plot(*place(y), "o", color=colour, markersize=7)
            axes.annotate(name, place(y), (8 * side, -2), textcoords="offset points", color=colour,
                          weight="bold", ha="left" if side > 0 else "right")  # fmt: skip


def two_slice() -> None:
    """The root's score distribution cut at a threshold, and the children's."""
    p, q, paths = np.array([0.08, 0.22, 0.45, 0.25]), np.array([0.35, 0.30, 0.20, 0.15]), 3
    print("two_slice: p =", p.tolist(), "q =", q.tolist(), "K =", paths)

    def ratios(u: float) -> np.ndarray[Any, Any]:
        low, high = u ** (paths - 1), (1 - u**paths) / (1 - u)
        return np.clip(p / q, low, high)

    left, right = 1e-9, 1 - 1e-9
    for _ in range(80):
        middle = (left + right) / 2
        left, right = (middle, right) if ratios(middle) @ q < 1 else (left, middle)
    u = (left + right) / 2
    low, high = u ** (paths - 1), (1 - u**paths) / (1 - u)
    share = (high - ratios(u)) / (high - low)
    with figure(FOLDER / "two_slice.svg", 7.4, 3.2) as canvas:
        root, below = canvas.subplots(1, 2, sharex=True)
        root.bar([u / 2, (1 + u) / 2], [1, 1], [u, 1 - u], color=[SKY, BLUE], alpha=0.5)
        v = np.linspace(0, 1, 200)
        root.plot(v, paths * v ** (paths - 1), color=BLACK, ls="--")
        root.axvline(u, color=RED)
        root.text(u, 2.85, f" u = {u:.3f}", color=RED)
        root.text(u / 2, 0.5, "lower slice", ha="center")
        root.text((1 + u) / 2, 0.5, "upper", ha="center")
        root.set(title="the root", xlabel="score", ylabel="density", ylim=(0, paths))
        bottom = np.zeros(2)
        for token in range(4):
            heights = q[token] * np.array([share[token] / u, (1 - share[token]) / (1 - u)])
            below.bar([u / 2, (1 + u) / 2], heights, [u, 1 - u], bottom, color=TOKENS[token])
            for x, h, b in zip((u / 2, (1 + u) / 2), heights, bottom, strict=True):
                if h > 0.06:
                    below.text(
                        x, b + h / 2, f"token {token}", color="white", ha="center", va="center"
                    )
            bottom += heights
        below.set(title="its children, times q", xlabel="score", ylim=(0, 1.02), xlim=(0, 1))
        below.grid(False)


def hour() -> None:
    """Mean acceptance of four rules over n, on the built-in capture."""
    capture, counts = captures.builtin(), (1, 2, 4, 6, 8)
    with figure(FOLDER / "hour.svg", 5.2, 3.4) as canvas:
        axes = canvas.subplots()
        for rule in ("martingale", "k-seq", "recursive-rejection", "naive"):
            means = [
                np.mean([
                    row.acceptance
                    for row in otlp.solve_many(otlp.CaptureProblems(capture, n=n), rule, jobs=1)
                ])
                for n in counts
            ]  # fmt: skip
            axes.plot(counts, means, **look(rule))
            name = {"martingale": "optimum", "recursive-rejection": "recursive\nrejection"}.get(
                rule, rule
            )
            up = {"martingale": 9, "k-seq": 2, "recursive-rejection": -15}.get(rule, 0)
            axes.annotate(name, (counts[-1], means[-1]), (7, up), textcoords="offset points",
                          va="center", color=look(rule)["color"])  # fmt: skip
        axes.set(
            xlabel="n, number of drafts", ylabel="mean acceptance", xticks=counts, xlim=(0.7, 8.2)
        )
        axes.set_ylim(0, 1)


def sweep() -> None:
    """Acceptance over n with intervals: `otlp sweep --n 1,2,3,4,6,8`."""
    from otlp.parallel.rows import CaptureRows
    from otlp.studies.figures import draw_sweep
    from otlp.studies.sweep import Grid
    from otlp.studies.sweep import sweep as measure

    capture = captures.builtin()
    grid = Grid((1, 2, 3, 4, 6, 8), rules=("martingale", "k-seq", "recursive-rejection", "naive"))
    points = measure(CaptureRows(capture, range(len(capture))), grid)
    draw_sweep(FOLDER / "sweep.svg", points, "n", f"built-in capture, {len(capture)} rows")


def decode() -> None:
    """Block efficiencies, from `bench/results/decode.json`."""
    import decode as bench

    from otlp.studies.estimate import Estimate

    names = bench.Row.__dataclass_fields__
    rows = []
    for row in stored("results/decode.json")["rows"]:
        row["prompt_means"] = tuple(row["prompt_means"])
        known = {key: value for key, value in row.items() if key in names}
        if "block_efficiency" in names:
            known["block_efficiency"] = Estimate(*row["block_efficiency"])
        rows.append(bench.Row(**known))
    bench.draw(rows, FOLDER / "decode.svg")


def cascades() -> None:
    """Quality against cost of cascades, from `bench/results/cascades.json`."""
    from otlp.studies.cascade_curve import Point
    from otlp.studies.estimate import Estimate
    from otlp.studies.figures import draw_cascades

    content = stored("results/cascades.json")
    points = [
        Point(**{k: Estimate(*v) if isinstance(v, list) else v for k, v in point.items()})
        for point in content["points"]
    ]
    models = f"{content['target']} / {content['draft']}"
    text = f"{content['text_tokens']} held-out tokens, {content['drafts']} drafts"
    draw_cascades(FOLDER / "cascades.svg", points, f"{models}, {text} of {content['length']}")


def trees() -> None:
    """Tokens a target call over the nodes, from `bench/results/`."""
    import trees as bench

    for name in ("trees", "trees_smollm2"):
        bench.draw(stored(f"results/{name}.json"), FOLDER / f"{name}.svg")


def draft_quality() -> None:
    """Rules, schemes and drafts as served over the overlap, from `bench/results/`."""
    import draft_quality_figures as bench

    results = ROOT / "bench" / "results"
    names = "draft_quality_smollm2.json", "draft_quality_gemma3-270m.json"
    bench.draw([results / name for name in names], FOLDER)


def global_resolution() -> None:
    """The seven figures of the reproduction, from `bench/global_resolution/results/`."""
    import acceptance
    import acceptance_against_time as against_time
    import limits
    import temperature
    import times

    def content(name: str) -> Any:
        return stored(f"global_resolution/results/{name}.json")

    def save(name: str, drawn: Any) -> None:
        drawn.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})

    for name in acceptance.ROWS:
        save(name, acceptance.draw(name, content(name)))
    save("acceptance_against_time", against_time.draw(content("acceptance_against_time")))
    save("tables_1_3", times.draw(content("tables_1_3")["methods"]))
    save("table_2", limits.draw(content("table_2")["best"]))
    save("figure_5", temperature.draw(content("figure_5")["cells"]))


def lossy() -> None:
    """Acceptance above alpha* over what is lost for it, with the bound: ten built-in rows."""
    rows = [captures.builtin().distributions(row) for row in range(0, 160, 16)]
    made: dict[str, tuple[list[float], Callable[[float], lossy_rules.LossyRule]]] = {
        "typical": ([0.02, 0.05, 0.09, 0.2, 0.4], lambda most: lossy_rules.typical(most, 0.3)),
        "entropy": ([1.0, 2.0, 3.0, 4.0, 5.0], lossy_rules.by_entropy),
        "ensemble": ([0.9, 0.7, 0.5, 0.3, 0.1], lossy_rules.ensemble),
        "token-v3": (
            [0.5, 0.7, 0.9, 0.97, 0.99],
            lambda alpha: lossy_rules.aimed(TokenCascade(TokenV3(alpha))),
        ),
        "cactus": ([0.001, 0.01, 0.05, 0.2, 1.0], lossy_rules.cactus),
        "lossy": ([0.1, 0.3, 0.5, 0.8, 0.95], lambda a: lossy_rules.aimed(Lossy(a))),
    }
    with figure(FOLDER / "lossy.svg", 6.0, 4.0) as canvas:
        axes = canvas.subplots()
        axes.plot([0, 0.7], [0, 0.7], color=GREY, lw=1.0, label="bound")
        for (name, (values, rule)), color in zip(made.items(), TOKENS, strict=True):
            found = [[lossy_rules.measure_loss(rule(v), *row) for row in rows] for v in values]
            lost = [np.mean([one.total_variation for one in some]) for some in found]
            gained = [np.mean([one.acceptance - one.lossless for one in some]) for some in found]
            axes.plot(lost, gained, "o-", color=color, label=name, ms=4)
        axes.set(xlabel="total variation from the target", ylabel="acceptance above alpha*")
        axes.legend(frameon=False)


def gallery() -> None:
    """The figures of the gallery: its scripts, run in their folder."""
    with chdir(ROOT / "docs" / "gallery"):
        for script in sorted(Path().glob("*.py")):
            runpy.run_path(str(script))


FIGURES: dict[str, Callable[[], None]] = {
    made.__name__: made
    for made in (
        *(flow, prefix_bound, score_cells, ratio_cells, polytope, two_slice),
        *(hour, sweep, decode, cascades, trees, draft_quality, global_resolution, lossy, gallery),
    )
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    for name in parser.parse_args().names or FIGURES:
        FIGURES[name]()
        print("made", name)
