"""The figure of ``otlp lab design``: tokens per target call over the number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from otlp.errors import clean
from otlp.studies.canvas import figure
from otlp.studies.style import NAMES, PRINT, look
from otlp_lab.design import Candidate

WIDTH = 4.6
"""Width in inches."""


def draw_designs(path: Path, designs: Mapping[int, Sequence[Candidate]], title: str) -> None:
    """Draw tokens per target call over the number of nodes, one line per family.

    Parameters
    ----------
    path : Path
    designs : mapping of int to sequence of Candidate
        Best candidate of each family by number of nodes.  Bars are standard errors over texts.
    title : str

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    families: dict[str, list[tuple[int, Candidate]]] = {}
    for budget, found in designs.items():
        for one in found:
            name = "chain" if one.is_chain else one.family
            families.setdefault(name, []).append((budget, one))
    with figure(path, WIDTH, 3.9, PRINT | NAMES) as canvas:
        axes = canvas.subplots()
        for family, own in families.items():
            axes.errorbar(
                [budget for budget, _ in own],
                [one.efficiency for _, one in own],
                [one.error for _, one in own],
                label=family,
                elinewidth=0.8,
                capthick=0.8,
                **look(family, list(families)),
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(designs), [str(budget) for budget in designs])
        axes.set_xlabel("N, draft nodes per round")
        axes.set_ylabel("tokens per target call")
        canvas.legend(loc="outside lower center", ncols=3)
        canvas.suptitle(fill(clean(title), 64), fontsize="medium")
