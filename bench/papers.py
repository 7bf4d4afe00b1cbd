"""Block efficiencies that papers report, beside those of the trained pair, as gains.

    python bench/papers.py

The pairs of models differ, so tokens a call do not compare; what a rule gains over another one
does.  Ours are from the stored runs of `bench/block_efficiency.py`, paired over texts, and, where
it has no such rule, of `bench/decode.py`, paired over prompts; ± is half a 95% interval.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from otlp.cli.output import show, table
from otlp.studies.estimate import ratio

GAINS = json.loads(Path(__file__).with_name("published_gains.json").read_text(encoding="utf-8"))
"""What papers compare: two settings of ours, and block efficiencies of each of its pairs there."""


def main() -> None:
    """Print all of it."""
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
