"""Cost of verification algorithms, in two minutes on an idle machine.

    OMP_NUM_THREADS=1 python bench/verification_cost.py

"Share" is the largest share of a round's wall time over all settings (K, L, temperature) on the
trained pair, from the medians of the parts of a round; all algorithms verify the same trees.  "ms"
and "processor ms" are the times of one verification on synthetic distributions over a large
vocabulary: the minimum of some runs for each round, then the mean over rounds; "worst" is the
maximum over rounds.  Algorithms whose share or worst round is above the limits are named below the
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import click
import numpy as np
from decode import HUB, LEADER, MULTIPLE, SINGLE, paired_rounds
from measuring import repeated, report

from otlp.cli.options import json_option
from otlp.cli.output import console, progress
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import (
    ALGORITHMS,
    Drafting,
    DraftTree,
    RandomChooser,
    Sampling,
    TabularModel,
    Verification,
    iid_paths,
)
from otlp.distribution import FloatArray, softmax
from otlp.studies.decoding import Setting

SHARE_LIMIT, MS_LIMIT = 0.05, 30.0
ROUNDS_A_TREE = 4
NAMES = (*SINGLE, *MULTIPLE, HUB)
SETTINGS = [
    Setting(name, paths, length, temperature)
    for temperature in (0.2, 1.0)
    for name, paths, length in (
        (LEADER, 1, 8), (LEADER, 2, 4), (LEADER, 2, 8), (LEADER, 4, 4), (LEADER, 4, 8), (HUB, 2, 4),
    )
]  # fmt: skip


def shares(prompts: int, rounds: int, step: Callable[[str], None]) -> dict[str, float]:
    """Return the largest share of a round's wall time on the trained pair, by algorithm."""
    pair = open_pair("trained:draft", "trained:target", "cpu", "auto", Sampling())
    texts = encode_prompts(pair[1], read_prompts(None, prompts))
    for setting in {(s.algorithm, s.paths): s for s in SETTINGS}.values():
        paired_rounds(pair, texts[:1], setting, 1, 1.0)  # compiles on first use
    found: dict[str, float] = {}
    for setting in SETTINGS:
        for model in pair:
            model.sampling = Sampling(setting.temperature)
        for row in paired_rounds(pair, texts, setting, rounds, 1.0):
            whole = row.draft_seconds + row.target_seconds + row.verify_seconds
            found[row.algorithm] = max(found.get(row.algorithm, 0.0), row.verify_seconds / whole)
        step(f"{setting.algorithm}, K {setting.paths}, L {setting.length}")
    return found


def milliseconds(
    rules: Mapping[str, Verification], trees: Sequence[tuple[DraftTree, FloatArray]], repeats: int
) -> dict[str, list[float]]:
    """Return mean, maximum and processor milliseconds of rounds, each the best of `repeats`."""
    found = {}
    for name, rule in rules.items():

        def verify(
            tree: DraftTree, laws: FloatArray, seed: int, rule: Verification = rule
        ) -> object:
            return rule.verify(tree, laws, RandomChooser(np.random.default_rng(seed)))

        clocks = perf_counter, process_time
        rounds = [
            repeated(partial(verify, *tree, seed), repeats, *clocks).min(axis=0)
            for tree, seed in product(trees, range(ROUNDS_A_TREE))
        ]
        wall, processor = 1e3 * np.transpose(rounds)
        found[name] = [float(wall.mean()), float(wall.max()), float(processor.mean())]
    return found


def synthetic_round(
    drafting: Drafting, vocab_size: int, rng: np.random.Generator
) -> tuple[DraftTree, FloatArray]:
    """Draft from synthetic distributions: normal target logits, and added noise for the draft."""
    logits = 3.0 * rng.standard_normal((drafting.length + 1, vocab_size))
    noisy = logits + rng.standard_normal(logits.shape)

    class ByDepth(TabularModel):
        def __init__(self) -> None:
            super().__init__([np.full(2, 0.5)])

        def distributions(self, tree, nodes):  # type: ignore[no-untyped-def]
            return softmax(noisy[tree.depths[nodes]])

    tree = drafting.draft(ByDepth(), RandomChooser(rng))
    return tree, softmax(logits[tree.depths])


def measure(
    paths: int, length: int, vocab_size: int, trees: int, repeats: int
) -> dict[str, list[float]]:
    """Return the milliseconds of all algorithms for K paths, on the same synthetic trees."""
    rng = np.random.default_rng(2)
    drafted = [synthetic_round(iid_paths(paths, length), vocab_size, rng) for _ in range(trees)]
    single = [synthetic_round(iid_paths(1, length), vocab_size, rng) for _ in range(trees)]
    return milliseconds(named(MULTIPLE), drafted, repeats) | milliseconds(
        named(SINGLE), single, repeats
    )


def named(names: Sequence[str]) -> dict[str, Verification]:
    """Return the library's algorithms with these names."""
    return {name: ALGORITHMS[name] for name in names}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--prompts", type=click.IntRange(1), default=3)
@click.option("--rounds", type=click.IntRange(1), default=8, help="Rounds per prompt.")
@click.option("--vocab-size", type=click.IntRange(2), default=128_256)
@click.option("--paths", type=click.IntRange(1), default=4, help="Paths of synthetic trees.")
@click.option("--length", type=click.IntRange(1), default=8, help="Length of synthetic trees.")
@click.option("--repeats", type=click.IntRange(1), default=3, help="Runs per synthetic round.")
@json_option("Write the results to this file.")
def main(
    prompts: int,
    rounds: int,
    vocab_size: int,
    paths: int,
    length: int,
    repeats: int,
    json_path: Path | None,
) -> None:
    with progress("measuring", len(SETTINGS) + 1) as step:
        found = shares(prompts, rounds, step)
        times = measure(paths, length, vocab_size, 3, repeats)
        step("synthetic distributions")
    heads = ("ms", "worst", "processor ms")
    rows: list[dict[str, Any]] = [
        {"algorithm": name, "share of a round": found[name],
         **dict(zip(heads, times.get(name, [math.nan] * 3), strict=True))}
        for name in NAMES
    ]  # fmt: skip
    title = f"ms: synthetic distributions, V = {vocab_size:,}, K {paths}, L {length}"
    report(title, rows, json_path)
    for what, limit, head in (
        ("of a round", SHARE_LIMIT, "share of a round"),
        ("ms", MS_LIMIT, "worst"),
    ):
        late = [row["algorithm"] for row in rows if row[head] > limit]
        console.print(f"above {limit:g} {what}: {', '.join(late) or 'none'}")


if __name__ == "__main__":
    main()
