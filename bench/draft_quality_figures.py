"""Tables and figures of the results of `draft_quality.py`.

    python bench/draft_quality_figures.py bench/results/draft_quality_*.json --folder docs/figures

Brackets and ± are 95% intervals over the measured texts.  Comparisons are paired by text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from otlp.cli.output import console, table
from otlp.distribution import FloatArray
from otlp.studies.canvas import figure
from otlp.studies.estimate import Estimate, mean_over_units, rate_ratio, ratio
from otlp.studies.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, YELLOW

RULES = {
    "optimum": (BLUE, "o", "optimum"),
    "k-seq": (PINK, "P", "k-seq"),
    "recursive-rejection": (RED, "X", "recursive rejection"),
    "coupled": (GREEN, "s", "shared noise, n best"),
    "likeliest": (YELLOW, "v", "n likeliest"),
}
"""Colour, marker and name of the rules at one position."""

SCHEMES = {
    "recommended": BLUE,
    "i.i.d. paths, two-slice": SKY,
    "chain, block": GREY,
    "Sequoia's tree, traversal": ORANGE,
    "Sequoia, recursive rejection": RED,
    "top tree, target-only": YELLOW,
    "shared noise, equality": GREEN,
}
"""Colours of the schemes."""

LABELS = {
    "i.i.d. paths, two-slice": "i.i.d. paths",
    "chain, block": "chain",
    "Sequoia's tree, traversal": "traversal",
    "Sequoia, recursive rejection": "Sequoia",
    "top tree, target-only": "top tree",
    "shared noise, equality": "shared noise",
}
"""Short names of the schemes."""

OWN = tuple(LABELS)
"""Schemes in the ranking: all but the recommended scheme, which is one of these or a mixed tree."""

SAMPLINGS = ("T = 0.3", "T = 0.6", "T = 1", "served")

KINDS = ("cut", "whole")
"""Kinds of draft as served."""

HEADING = ("target", "draft", "sampling", "overlap")


@dataclass(frozen=True)
class Cell:
    """A pair at one sampling."""

    target: str
    draft: str
    sampling: str
    content: dict[str, Any]

    @property
    def overlap(self) -> float:
        """Mean sum min(p, q)."""
        return float(np.mean(self.content["overlap"]))

    @property
    def heading(self) -> tuple[str, str, str, str]:
        """First columns of the tables; see `HEADING`."""
        return self.target, self.draft, self.sampling, f"{self.overlap:.2f}"

    def accepted(self, rule: str, n: int) -> FloatArray:
        """Return the acceptance of a rule at one position, shape (texts,)."""
        return np.array(self.content["one position"][f"{rule} {n}"])

    def served(self, cut: str, kind: str, rule: str, n: int) -> FloatArray:
        """Return the acceptance for a draft as served, shape (texts,)."""
        return np.array(self.content["as served"][f"{cut}: {kind} {rule} {n}"])

    def rows(self, nodes: str) -> dict[str, dict[str, Any]]:
        """Return the measured schemes by name."""
        parts = ("rounds", "grown trees")
        every = [row for part in parts for row in self.content.get(part, {}).get(nodes, [])]
        return {row["name"]: row for row in every}

    def sums(self, nodes: str, scheme: str) -> tuple[FloatArray, FloatArray]:
        """Return tokens and calls of a scheme, each of shape (texts,)."""
        row = self.rows(nodes)[scheme]
        return np.array(row["tokens"]), np.array(row["calls"])

    def efficiency(self, nodes: str, scheme: str) -> float:
        """Return tokens per target call."""
        return ratio(*self.sums(nodes, scheme)).mean

    def gain(self, nodes: str, one: str, other: str) -> Estimate:
        """Estimate the relative gain of one scheme over another, in percent."""
        return gain(*self.sums(nodes, one), *self.sums(nodes, other))

    def ranking(self, nodes: str) -> list[str]:
        """Return the schemes of `OWN`, the best first."""
        return sorted(OWN, key=lambda scheme: -self.efficiency(nodes, scheme))


def gain(tokens: Any, calls: Any, other_tokens: Any, other_calls: Any) -> Estimate:
    """Estimate the gain in tokens per call on the same texts, in percent."""
    found = rate_ratio(*map(np.array, (tokens, calls, other_tokens, other_calls)))
    return Estimate(*(100.0 * (end - 1.0) for end in (found.mean, found.low, found.high)))


def mean(values: FloatArray) -> Estimate:
    return mean_over_units(values, np.arange(values.size))[0]


def read(paths: Sequence[Path]) -> list[Cell]:
    """Read the cells, by overlap."""
    cells = []
    for path in paths:
        for key, content in json.loads(path.read_text(encoding="utf-8"))["cells"].items():
            target, rest = key.split(" / ")
            draft, sampling = rest.rsplit(", ", 1)
            cells.append(Cell(target, draft, sampling, content))
    return sorted(cells, key=lambda cell: cell.overlap)


def measured_whole(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells in which all schemes were measured."""
    return [cell for cell in cells if "grown trees" in cell.content]


def pairs(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Return the pairs, by mean overlap."""
    found = dict.fromkeys((cell.target, cell.draft) for cell in cells)
    return sorted(found, key=lambda pair: _overlap(cells, pair))


def one_position(cells: Sequence[Cell]) -> Table:
    made = table(
        *HEADING,
        "n",
        *(r[2] for r in RULES.values()),
        "over recursive rejection, %",
        "over k-seq, %",
    )
    for cell in cells:
        for n in (2, 4, 8):
            best = cell.accepted("optimum", n)
            gains = []
            for rule in ("recursive-rejection", "k-seq"):
                other = cell.accepted(rule, n)
                gains.append(mean(100.0 * (best - other) / other.mean()).show(1))
            values = (f"{cell.accepted(rule, n).mean():.3f}" for rule in RULES)
            made.add_row(*cell.heading, str(n), *values, *gains)
    return made


def rounds(cells: Sequence[Cell]) -> Table:
    made = table(
        *HEADING,
        "N",
        *("recommended", *LABELS.values()),
        "first over second, %",
        "recommended over first, %",
    )
    for cell in cells:
        for nodes in cell.content["rounds"]:
            first, second = cell.ranking(nodes)[:2]
            values = (f"{cell.efficiency(nodes, name):.2f}" for name in ("recommended", *OWN))
            over = f"{LABELS[first]}: {cell.gain(nodes, first, second).show(1)}"
            chosen = cell.gain(nodes, "recommended", first).show(1)
            made.add_row(*cell.heading, nodes, *values, over, chosen)
    return made


def choices(cells: Sequence[Cell]) -> Table:
    """Compare the recommended scheme with the leader of half of the texts, on the other half.

    The leader of all texts would be partly a matter of luck.
    """
    made = table("N", "settings", "recommended over the leader of the other half, %")
    for nodes in cells[0].content["rounds"]:
        gains = [
            (_over_leader(cell, nodes, 0) + _over_leader(cell, nodes, 1)) / 2.0 for cell in cells
        ]
        made.add_row(nodes, str(len(gains)), mean(100.0 * np.array(gains)).show(1))
    return made


def _over_leader(cell: Cell, nodes: str, half: int) -> float:
    """Return the relative gain over the leader of every second text, on the other texts."""
    rates = {}
    for scheme in ("recommended", *OWN):
        tokens, calls = cell.sums(nodes, scheme)
        rates[scheme] = [ratio(tokens[at::2], calls[at::2]).mean for at in (half, 1 - half)]
    leader = max(OWN, key=lambda scheme: rates[scheme][0])
    return rates["recommended"][1] / rates[leader][1] - 1.0


def served(cells: Sequence[Cell]) -> Table:
    made = table(
        *HEADING,
        "cut",
        "n",
        "optimum, cut draft",
        "whole draft",
        "n likeliest",
        "cut over whole, %",
        "likeliest over cut, %",
    )
    for cell in cells:
        if "as served" not in cell.content:
            continue
        for cut in cuts(cell):
            for n in (1, 2, 4):
                cut_draft, whole = (cell.served(cut, kind, "optimum", n) for kind in KINDS)
                likely = cell.served(cut, "cut", "likeliest", n)
                gains = (
                    mean(100.0 * (a - b) / b.mean()).show(1)
                    for a, b in ((cut_draft, whole), (likely, cut_draft))
                )
                made.add_row(
                    *cell.heading,
                    cut,
                    str(n),
                    *(f"{x.mean():.3f}" for x in (cut_draft, whole, likely)),
                    *gains,
                )
    return made


def cuts(cell: Cell) -> list[str]:
    return list(dict.fromkeys(name.partition(":")[0] for name in cell.content["as served"]))


def draw_one_position(cells: Sequence[Cell], path: Path) -> None:
    """Draw the gain of n drafts over one draft, over the overlap."""
    with figure(path, 7.6, 3.2) as canvas:
        panels = canvas.subplots(1, 3, sharey=True)
        for panel, n in zip(panels, (2, 4, 8), strict=True):
            for rule, (colour, marker, name) in RULES.items():
                over = [cell.overlap for cell in cells]
                gained = [
                    cell.accepted(rule, n).mean() - cell.accepted("optimum", 1).mean()
                    for cell in cells
                ]
                panel.plot(over, gained, marker, color=colour, label=name, markersize=4, alpha=0.85)
            panel.axhline(0.0, color=BLACK, linewidth=0.7)
            panel.set(title=f"n = {n}", xlabel="overlap")
        panels[0].set_ylabel("acceptance minus\nthat of one draft")
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)


def draw_rounds(cells: Sequence[Cell], path: Path) -> None:
    """Draw the leading scheme over pairs and samplings, and its gain over the second in percent."""
    samplings = [name for name in SAMPLINGS if any(name == cell.sampling for cell in cells)]
    every = pairs(cells)
    budgets = list(cells[0].content["rounds"])
    with figure(path, 7.6, 1.4 + 0.33 * len(every)) as canvas:
        panels = canvas.subplots(1, len(budgets), sharey=True)
        for panel, nodes in zip(panels, budgets, strict=True):
            for cell in cells:
                x, y = samplings.index(cell.sampling), every.index((cell.target, cell.draft))
                first, second = cell.ranking(nodes)[:2]
                over = cell.gain(nodes, first, second).mean
                panel.add_patch(_square(x, y, SCHEMES[first]))
                panel.text(x, y, f"{over:.0f}", ha="center", va="center", fontsize=8)
            panel.set(
                title=f"N = {nodes}",
                xlim=(-0.5, len(samplings) - 0.5),
                ylim=(-0.5, len(every) - 0.5),
            )
            panel.set_xticks(range(len(samplings)), samplings, rotation=30, ha="right")
            panel.grid(visible=False)
        labels = [f"{_short(*pair)} ({_overlap(cells, pair):.2f})" for pair in every]
        panels[0].set_yticks(range(len(every)), labels)
        handles = [_square(0, 0, SCHEMES[name]) for name in OWN]
        canvas.legend(handles, LABELS.values(), loc="outside lower center", ncols=6)


def _short(target: str, draft: str) -> str:
    """Return a short name of a pair."""
    skipped = draft.removeprefix("skip:").split(",")
    shown = f"{len(skipped)} skipped" if draft.startswith("skip:") else "published"
    return f"{target.split('-')[0]}, {shown}"


def _overlap(cells: Sequence[Cell], pair: tuple[str, str]) -> float:
    return float(np.mean([c.overlap for c in cells if pair == (c.target, c.draft)]))


def _square(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1.0, 1.0, facecolor=colour, alpha=0.6, edgecolor="white")


def draw_served(cells: Sequence[Cell], path: Path) -> None:
    """Draw the gain of a draft that is cut like the target, and of likeliest tokens."""
    served_cells = [cell for cell in cells if "as served" in cell.content]
    names = cuts(served_cells[0])
    with figure(path, 7.6, 3.0) as canvas:
        panels = canvas.subplots(1, len(names), sharey=True)
        for panel, cut in zip(panels, names, strict=True):
            for label, colour, marker, n, kind, rule in (
                ("cut draft, n = 1", BLUE, "o", 1, "cut", "optimum"),
                ("cut draft, n = 4", SKY, "s", 4, "cut", "optimum"),
                ("likeliest token, n = 1", RED, "v", 1, "cut", "likeliest"),
                ("likeliest tokens, n = 4", ORANGE, "^", 4, "cut", "likeliest"),
            ):
                values = [
                    cell.served(cut, kind, rule, n).mean()
                    - cell.served(cut, "whole", "optimum", n).mean()
                    for cell in served_cells
                ]
                panel.plot(
                    [cell.overlap for cell in served_cells],
                    values,
                    marker,
                    color=colour,
                    label=label,
                )
            panel.axhline(0.0, color=BLACK, linewidth=0.7)
            panel.set(title=cut, xlabel="overlap")
        panels[0].set_ylabel("acceptance minus that of\nthe optimum, whole draft")
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def draw(paths: Sequence[Path], folder: Path) -> None:
    """Draw the three figures into a folder."""
    cells = read(paths)
    draw_one_position(cells, folder / "draft_quality_position.svg")
    draw_rounds(measured_whole(cells), folder / "draft_quality_rounds.svg")
    draw_served(cells, folder / "draft_quality_served.svg")


@click.command(help=__doc__.replace("\n\n    python", "\n\n\b\n    python"))
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Of the figures.")
def main(paths: tuple[Path, ...], folder: Path | None) -> None:
    cells = read(paths)
    whole = measured_whole(cells)
    for made in (one_position(cells), rounds(whole), choices(whole), served(cells)):
        console.print(made, soft_wrap=True)
    if folder is not None:
        draw(paths, folder)


if __name__ == "__main__":
    main()
