"""Style of all figures: one colour and one marker for each algorithm.

The colours are those of Okabe and Ito, which are distinguishable for all kinds of colour vision.
Algorithms that share a colour differ in marker and dashes, also in greyscale prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BLACK, GREY = "#000000", "#8a8a8a"
ORANGE, SKY, GREEN, BLUE = "#e69f00", "#56b4e9", "#009e73", "#0072b2"
RED, PINK, YELLOW = "#d55e00", "#cc79a7", "#b8a800"  # yellow is darkened to be visible on white

COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, YELLOW, BLACK)
MARKERS = "osD^vP*X<>hd"

LOOK: Any = {
    "axes.grid": True,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "errorbar.capsize": 2.0,
    "figure.dpi": 150,
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType, which journals require
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "otlp",
}
"""Settings of matplotlib.  SVG files contain text as text and are reproducible."""

NAMES: Any = {"text.parse_math": False}
"""Settings of figures with user-defined names: dollar signs are literal."""

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Widths of figures for one and two columns of a paper, in inches, printed unscaled."""

PRINT: Any = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "legend.fontsize": 7.5,
    "lines.markersize": 4,
}
"""Settings of figures for papers, in addition to `LOOK`."""

ALGORITHMS: dict[str, tuple[str, str, str]] = {
    # solvers and single-step rules
    "martingale": (BLUE, "o", "-"),
    "orderings": (SKY, "s", "-"),
    "random-ranks": (BLUE, "s", "-."),
    "random-weights": (SKY, "D", "-."),
    "greedy": (GREEN, "P", "-."),
    "hub": (PINK, "h", "-."),
    "linear-program": (BLACK, "s", "--"),
    "max-flow": (GREEN, "v", "-"),
    "slackness": (PINK, "D", "-"),
    "global-resolution": (ORANGE, "^", "-"),
    "speculative-sampling": (SKY, ">", "--"),
    "k-seq": (PINK, "P", "--"),
    "recursive-rejection": (RED, "X", "--"),
    "naive": (GREY, "x", ":"),
    # verification of blocks, paths and trees
    "two-slice": (BLUE, "o", "-"),
    "speculative": (SKY, ">", "--"),
    "block": (BLACK, "<", "--"),
    "target-only": (YELLOW, "v", ":"),
    "optimal": (GREEN, "s", "-"),
    "greedy-multipath": (ORANGE, "D", "-"),
    "traversal": (RED, "^", "-"),
    "bottom-up": (BLUE, "h", "-"),
    "tournament": (BLACK, "*", "-"),
    # cascades
    "lossy": (BLUE, "o", "-"),
    "lossy-beta-1": (BLUE, "o", ":"),
    "sequence-chow": (GREY, "h", "--"),
    "bild": (RED, "s", "-"),
    "bild-fallback-0.1": (RED, "<", ":"),
    "bild-fallback-0.5": (RED, "h", ":"),
    "bild-fallback-0.9": (RED, ">", ":"),
    "chow": (GREEN, "D", "-"),
    "diff": (ORANGE, "^", "-"),
    "opt": (PINK, "v", "-"),
    "token-v1": (SKY, "P", "-"),
    "token-v2": (YELLOW, "*", "-"),
    "token-v3": (BLACK, "X", "-"),
    # references
    "optimum": ("#bdbdbd", "s", "-"),
    "information bound": (BLACK, "_", ":"),
}
"""Colour, marker and dashes of each algorithm, in every figure."""


def look(name: str, among: Sequence[str] = ()) -> dict[str, Any]:
    """Return the style of a line: the fixed style of its algorithm, else by its place in `among`.

    Parameters
    ----------
    name : str
        Name of an algorithm; text after a comma or a bracket is ignored.
    among : sequence of str
        Names of all lines of the figure.
    """
    known = name if name in ALGORITHMS else name.partition(",")[0].partition(" (")[0]
    if known in ALGORITHMS:
        colour, marker, dashes = ALGORITHMS[known]
    else:
        others = [one for one in among if one not in ALGORITHMS]
        taken = {ALGORITHMS[one][0] for one in among if one in ALGORITHMS}
        free = [one for one in COLOURS if one not in taken] or COLOURS
        place = others.index(name) if name in others else 0
        colour, marker = free[place % len(free)], MARKERS[place % len(MARKERS)]
        dashes = "-" if place < len(free) else "--"
    return {"color": colour, "marker": marker, "linestyle": dashes}
