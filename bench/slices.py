"""How far rules for K i.i.d. paths are from the optimum, and what no rule can gain.

    python bench/slices.py
    python bench/slices.py --seeds 1 --json slices.json

First families of tiny random models, see bench/slice_rules.py: one distribution at the root, two or
three after each other prefix.  Percent of block efficiency below the LP of each pair, on average
over the pairs of a family; then their mean, the largest, and how many families are better or worse
than two slices by more than .0001%.  Then single pairs, larger ones.  Everything is exact.
"""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from measuring import report
from slice_rules import RULES, random_family, rule_efficiency

from otlp.cli.output import progress, write_json
from otlp.decode import iid_paths, multipath_optimum
from otlp.decode.laws.drafting_lp import drafting_optimum
from otlp.decode.laws.information_lp import on_path_optimum, on_tree_optimum

SIZES = [(2, 2, 3, 2), (2, 2, 3, 3), (3, 2, 2, 2), (3, 2, 2, 3), (2, 3, 2, 2)]
"""V, L, options after a prefix, K."""
LARGER = [(5, 2, 2), (5, 2, 4), (8, 2, 3), (3, 4, 2), (3, 4, 4), (2, 7, 2)]
"""V, L, K."""
IN_SHORT_TREES = {"two slices, exact last level", "two slices, a look one level down"}
"""Rules that gain little there already."""
NOISE = (0.5, 1.0, 2.0)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--seeds", default=6, help="Families of a size.")
@click.option("--json", "json_path", type=click.Path(), help="Write what each family gave.")
def main(seeds: int, json_path: str | None) -> None:
    found: list[dict[str, float]] = []
    with progress("families", len(SIZES) * seeds) as step:
        for vocab_size, length, options, paths in SIZES:
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                family = random_family(vocab_size, length, options, rng, noise=NOISE[seed % 3])
                pairs, drafting = family.pairs, iid_paths(paths, length)
                known = np.mean([drafting_optimum(*pair, drafting) for pair in pairs])
                reached = {name: rule_efficiency(family, paths, RULES[name]) for name in RULES}
                for cells in (2, 4, 8, 64):
                    best = on_path_optimum(pairs, paths, length, cells)
                    reached[f"best scores of {cells} cells"] = best
                reached["best rule on the tree"] = on_tree_optimum(pairs, drafting)
                found.append({n: 100.0 * (1.0 - x / known) for n, x in reached.items()})
                step(f"V, L, options, K = {vocab_size}, {length}, {options}, {paths}")
    two = np.array([one["two slices"] for one in found])
    rows = []
    for name in found[0]:
        own = np.array([one[name] for one in found])
        better, worse = int(np.sum(own < two - 1e-4)), int(np.sum(own > two + 1e-4))
        mean, largest = float(own.mean()), float(own.max())
        rows.append(
            {"rule": name, "mean": mean, "largest": largest, "better": better, "worse": worse}
        )
    report("Percent below the LP", rows)
    report("Four single pairs each: mean percent below the LP", single_pairs())
    if json_path:
        write_json(json_path, {"V, L, options, K": SIZES, "percent below the LP": found})


def single_pairs() -> list[dict[str, Any]]:
    names = [name for name in RULES if name not in IN_SHORT_TREES]
    rows = []
    with progress("pairs", 4 * len(LARGER)) as step:
        for vocab_size, length, paths in LARGER:
            below = []
            for seed in range(4):
                rng, noise = np.random.default_rng(100 + seed), (*NOISE, 1.0)[seed]
                family = random_family(vocab_size, length, 1, rng, noise=noise)
                best = multipath_optimum(*family.pairs[0], paths, length).block_efficiency
                own = [rule_efficiency(family, paths, RULES[name]) for name in names]
                below.append([100.0 * (1.0 - x / best) for x in own])
                step(f"V, L, K = {vocab_size}, {length}, {paths}")
            means = map(float, np.mean(below, axis=0))
            size = {"V, L, K": f"{vocab_size}, {length}, {paths}"}
            rows.append({**size, **dict(zip(names, means, strict=True))})
    return rows


if __name__ == "__main__":
    main()
