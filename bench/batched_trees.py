"""Time tournament verification of one drafted tree: `otlp.batched.verify_tree` beside the CPU's.

    python bench/batched_trees.py --vocab 128256

The distributions are synthetic, normal logits for the target, perturbed for the draft, and the
same trees go to both, in turn, in one process of one thread.  Times on a CPU are its own, so that
other programs count less.  "Slots" are the drafted tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time

import click
import numpy as np
import torch
from measuring import repeated
from verification_cost import synthetic_round

from otlp import batched
from otlp.cli.output import console, table
from otlp.decode import (
    Drafting,
    DraftTree,
    RandomChooser,
    Tournament,
    iid_paths,
    mixed_tree,
    prefix_tree,
    top_tree,
)
from otlp.distribution import FloatArray

DRAFTINGS: dict[str, Drafting] = {
    "a node, 4 drawn": iid_paths(4, 1),
    "a node, 2 certain, 2 drawn": mixed_tree([(2, 2)]),
    "paths, 8 x 4": iid_paths(8, 4),
    "prefix tree (2, 2, 2, 2)": prefix_tree([2, 2, 2, 2]),
    "mixed (1, 1) x 4": mixed_tree([(1, 1)] * 4),
    "32 certain nodes": top_tree(32, 6),
}


def packed(tree: DraftTree, targets: FloatArray, device: str) -> Callable[[], object]:
    """Verification of the tree on the device, as a row of a batch."""
    drafts = np.zeros_like(targets)
    for node, distribution in tree.distributions.items():
        drafts[node] = distribution
    slots = tree.slots
    shape = batched.TreeShape(
        *(torch.from_numpy(part)[None] for part in (slots.parents, slots.certain, slots.last))
    )
    target, draft, tokens, nodes = (
        torch.from_numpy(part)[None].to(device)
        for part in (targets, drafts, tree.tokens[slots.nodes], slots.nodes)
    )
    rows = target.float(), draft.float(), tokens, shape
    return lambda: batched.verify_tree(*rows, nodes=nodes, validate=False)


def milliseconds(action: Callable[[], object], rounds: int, device: str) -> float:
    """Median time of a call, of the processor on a CPU."""
    clock = process_time if device == "cpu" else perf_counter
    wait = str if device == "cpu" else torch.cuda.synchronize
    return 1e3 * float(np.median(repeated(lambda: (action(), wait()), rounds, clock)))


@click.command(help=__doc__)
@click.option("--vocab", default=128_256, type=click.IntRange(2), show_default=True)
@click.option("--rounds", default=5, type=click.IntRange(1), show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(vocab: int, rounds: int, device: str) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    shown = table("tree", "slots", "inner nodes", "CPU ms", f"torch on {device} ms")
    for name, drafting in DRAFTINGS.items():
        tree, targets = synthetic_round(drafting, vocab, rng)
        own = milliseconds(
            partial(Tournament().verify, tree, targets, RandomChooser(rng)), rounds, "cpu"
        )
        there = milliseconds(packed(tree, targets, device), rounds, device)
        sizes = tree.slots.nodes.size - 1, len(tree.distributions)
        shown.add_row(name, *map(str, sizes), f"{own:.1f}", f"{there:.1f}")
    console.print(shown)


if __name__ == "__main__":
    main()
