"""What `tournament` costs: one node by its children, and whole rounds of about 32 nodes.

    OMP_NUM_THREADS=1 python bench/tournament.py

Synthetic distributions: the target's logits are normal, the draft's add noise to them.  Of each
node and round the least of some runs, wall and processor milliseconds; mean and worst over all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, process_time

import click
import numpy as np
from measuring import repeated, report
from verification_cost import synthetic_round

from otlp.cli.output import progress
from otlp.decode import ALGORITHMS, Drafting, RandomChooser, iid_paths, mixed_tree, prefix_tree
from otlp.decode.verification.tournament import Branch, NodeState
from otlp.distribution import FloatArray, renormalise_without
from otlp.numerics.score_chains import root_score

NODES = [(0, 1), (0, 4), (0, 8), (2, 2)]
"""Certain and drawn children."""
TREES: list[tuple[str, Drafting]] = [
    ("4 x 8 paths", iid_paths(4, 8)),
    ("8 x 4 paths", iid_paths(8, 4)),
    ("prefix tree (4, 2, 1, 1)", prefix_tree([4, 2, 1, 1])),
    ("mixed nodes (2 + 2, 1 + 1, 0 + 1)", mixed_tree([(2, 2), (1, 1), (0, 1)])),
]


def node(certain: int, drawn: int, p: FloatArray, q: FloatArray) -> Callable[[], Branch]:
    """The children of one root: the draft's likeliest tokens and some drawn from the rest."""
    sure = np.argsort(-q)[:certain]

    def run() -> Branch:
        rest = renormalise_without(q, sure) if certain else q
        return Branch(NodeState(root_score(), 1.0), p, sure.tolist(), [], rest, drawn, 0)

    return run


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--vocab-size", type=click.IntRange(16), default=128_256)
@click.option("--trees", type=click.IntRange(1), default=4, help="Of each drafting.")
@click.option("--repeats", type=click.IntRange(1), default=7, help="Of each run.")
def main(vocab_size: int, trees: int, repeats: int) -> None:
    rows = []

    def add(name: str, slots: int, algorithm: str, runs: Sequence[Callable[[], object]]) -> None:
        least = [repeated(run, repeats, perf_counter, process_time).min(axis=0) for run in runs]
        wall, processor = 1e3 * np.transpose(least)
        rows.append(
            {"a node, or a round of": name, "slots": slots, "algorithm": algorithm,
             "ms": float(wall.mean()), "worst ms": float(wall.max()),
             "processor ms": float(processor.mean()), "worst": float(processor.max())}
        )  # fmt: skip

    with progress("measuring", len(NODES) + len(TREES)) as step:
        tree, targets = synthetic_round(iid_paths(1, 8), vocab_size, np.random.default_rng(0))
        laws = [(targets[at], tree.distributions[at]) for at in tree.distributions]
        for certain, drawn in NODES:
            name = f"a node, {certain} certain and {drawn} drawn"
            add(name, certain + drawn, "tournament", [node(certain, drawn, *law) for law in laws])
            step(name)
        for name, drafting in TREES:
            played = [
                synthetic_round(drafting, vocab_size, np.random.default_rng(seed))
                for seed in range(trees)
            ]
            for algorithm in ("tournament", "two-slice"):
                if not ALGORITHMS[algorithm].supports(drafting).supported:
                    continue
                runs = [
                    lambda one=one, a=algorithm: ALGORITHMS[a].verify(
                        *one, RandomChooser(np.random.default_rng(0))
                    )
                    for one in played
                ]
                add(name, played[0][0].slots.nodes.size - 1, algorithm, runs)
            step(name)
    report(f"V = {vocab_size:,}", rows)


if __name__ == "__main__":
    main()
