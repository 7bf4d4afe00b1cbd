"""Gains in block efficiency reported in papers, and those of the trained pair.

    python bench/papers.py

The pairs of models differ, so their tokens per call are not comparable, but the gain of a rule over
another rule is.  Our gains are from the stored runs of `bench/block_efficiency.py`, paired over
texts, and for other rules of `bench/decode.py`, paired over prompts; ± is half a 95% interval.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from otlp.cli.output import show, table
from otlp.studies.estimate import ratio

GAINS = json.loads(Path(__file__).with_name("published_gains.json").read_text(encoding="utf-8"))
"""Comparisons in papers: two settings of ours, and the block efficiencies of the paper's pairs."""


def main() -> None:
    """Print all comparisons."""
    results = Path(__file__).parent / "results"
    rows: list[dict[str, Any]] = json.loads((results / "decode.json").read_text())["rows"]
    means = {
        (row["algorithm"], row["paths"], row["length"], row["temperature"]): row["prompt_means"]
        for row in rows
    }
    for path in results.glob("block_efficiency*.json"):
        stored = json.loads(path.read_text())
        for cell, column in zip(stored["cells"], np.array(stored["texts"]).T, strict=True):
            means[*cell, stored["temperature"]] = column
    for title, cells in GAINS.items():
        made = table("", "here", "paper", title=title)
        for cell in cells:
            above, below = (np.array(means[tuple(cell[name])]) for name in ("above", "below"))
            published = ", ".join(f"{one / other:.2f}" for one, other in cell["papers"])
            made.add_row(cell["label"], str(ratio(above, below)), published)
        show(made)


if __name__ == "__main__":
    main()
