"""Block efficiencies that papers report, beside those of the trained pair, as gains.

    python bench/papers.py

The pairs of models differ, so tokens a call do not compare; what a rule gains over another one
does.  Ours are from `bench/results/decode.json`, paired over prompts, with 95% intervals
(`python bench/decode.py --json bench/results/decode.json` measures them).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from otlp.cli.output import show, table
from otlp.studies.estimate import ratio

Setting = tuple[str, int, int, float]
"""Algorithm, K, L, temperature."""

GAINS: dict[str, list[tuple[str, Setting, Setting, list[float]]]] = {
    "SpecTr, Table 4: k-seq over one path (97M target; drafts of 2M, 6M, 20M), T 1": [
        ("K 2, L 4", ("k-seq", 2, 4, 1.0), ("speculative", 1, 4, 1.0),
         [2.07 / 1.86, 2.43 / 2.21, 2.96 / 2.71]),
        ("K 4, L 4", ("k-seq", 4, 4, 1.0), ("speculative", 1, 4, 1.0),
         [2.32 / 1.86, 2.74 / 2.21, 3.28 / 2.71]),
        ("K 2, L 8", ("k-seq", 2, 8, 1.0), ("speculative", 1, 8, 1.0),
         [2.15 / 1.91, 2.61 / 2.33, 3.48 / 3.12]),
        ("K 4, L 8", ("k-seq", 4, 8, 1.0), ("speculative", 1, 8, 1.0),
         [2.41 / 1.91, 2.96 / 2.33, 3.85 / 3.12]),
    ],
    "GBV, Tables 1 and 3: greedy-multipath over block, GSM8K, L 8, T 1 "
    "(OPT 350M, OPT 125M, Qwen-3, Llama-3)": [
        (f"K {k}", ("greedy-multipath", k, 8, 1.0), ("block", 1, 8, 1.0), gains)
        for k, gains in (
            (2, [3.827 / 3.294, 3.407 / 2.937, 3.910 / 4.322, 4.430 / 4.943]),
            (3, [3.867 / 3.294, 3.526 / 2.937, 3.571 / 4.322, 4.271 / 4.943]),
            (4, [3.884 / 3.294, 3.562 / 2.937, 3.429 / 4.322, 4.625 / 4.943]),
        )
    ],
    "GBV, Table 5: greedy-multipath, K 3, over block, L 8 (Qwen-3)": [
        (f"T {t}", ("greedy-multipath", 3, 8, t), ("block", 1, 8, t), [gain])
        for t, gain in (
            (0.2, 4.219 / 3.867), (0.4, 4.333 / 4.313), (0.6, 4.492 / 4.308),
            (0.8, 4.161 / 4.430), (1.0, 3.571 / 4.322),
        )
    ],
    "GBV, Table 7: others over greedy-multipath, L 8 (Llama-3)": [
        ("k-seq, K 2, T 1", ("k-seq", 2, 8, 1.0), ("greedy-multipath", 2, 8, 1.0), [3.716 / 4.430]),
        ("k-seq, K 3, T 1", ("k-seq", 3, 8, 1.0), ("greedy-multipath", 3, 8, 1.0), [3.540 / 4.271]),
        ("recursive-rejection, K 2, T 1", ("recursive-rejection", 2, 8, 1.0),
         ("greedy-multipath", 2, 8, 1.0), [3.259 / 4.430]),
        ("recursive-rejection, K 3, T 1", ("recursive-rejection", 3, 8, 1.0),
         ("greedy-multipath", 3, 8, 1.0), [3.239 / 4.271]),
        ("traversal, K 2, T 1", ("traversal", 2, 8, 1.0), ("greedy-multipath", 2, 8, 1.0),
         [4.760 / 4.430]),
        ("traversal, K 3, T 1", ("traversal", 3, 8, 1.0), ("greedy-multipath", 3, 8, 1.0),
         [4.779 / 4.271]),
        ("traversal, K 2, T 0.2", ("traversal", 2, 8, 0.2), ("greedy-multipath", 2, 8, 0.2),
         [5.650 / 6.730]),
        ("traversal, K 3, T 0.2", ("traversal", 3, 8, 0.2), ("greedy-multipath", 3, 8, 0.2),
         [5.763 / 5.663]),
    ],
    "Global resolution, Table 4: K paths over K = 2, L 8, T 1 (Gemma-2)": [
        (f"K {k}", ("global-resolution", k, 8, 1.0), ("global-resolution", 2, 8, 1.0), [gain])
        for k, gain in ((3, 2.54 / 2.23), (4, 2.65 / 2.23))
    ],
}  # fmt: skip
"""What a paper compares: a label, two settings of ours, the paper's ratio for each of its pairs."""


def main() -> None:
    """Print all of it."""
    path = Path(__file__).parent / "results" / "decode.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    means = {
        (row["algorithm"], row["paths"], row["length"], row["temperature"]): row["prompt_means"]
        for row in rows
    }
    for title, cells in GAINS.items():
        made = table("", "here", "paper", title=title)
        for label, above, below, published in cells:
            gain = ratio(np.array(means[above]), np.array(means[below]))
            made.add_row(label, str(gain), ", ".join(f"{one:.2f}" for one in published))
        show(made)


if __name__ == "__main__":
    main()
