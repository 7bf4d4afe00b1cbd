"""The figure of ``otlp bench``: time against size, a line a solver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from otlp.errors import EngineNotFoundError
from otlp.studies.benchmark import Cell

__all__ = ["draw"]


def draw(path: Path, cells: Sequence[Cell]) -> None:
    """Draw median milliseconds a token over the (k, n) of the table.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EngineNotFoundError('a figure needs matplotlib: pip install "otlp[plot]"') from None
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for solver in dict.fromkeys(cell.solver for cell in cells):
        points = [
            (sizes.index(cell.size), cell.milliseconds())
            for cell in cells
            if cell.solver == solver and cell.solved
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=solver)
    axes.set_yscale("log")
    axes.set_xticks(range(len(sizes)), [f"({s.k or 'V'}, {s.n})" for s in sizes])
    axes.set_xlabel("(k, n): n drafts from the top k tokens")
    axes.set_ylabel("median ms a token")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, dpi=150)
