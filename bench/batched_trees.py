"""Time tournament verification of one drafted tree: `otlp.batched.verify_tree` beside the CPU's.

    python bench/batched_trees.py --vocab 128256

The distributions are synthetic, Gaussian logits for the draft, perturbed for the target, and the
same trees go to both, in turn, in one process of one thread.  Times on a CPU are its own, so that
other programs count less.  "Slots" are the drafted tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
import torch

from otlp import batched
from otlp.cli.output import console, table
from otlp.decode import (
    Drafting,
    DraftTree,
    Model,
    RandomChooser,
    Tournament,
    iid_paths,
    mixed_tree,
    prefix_tree,
    top_tree,
)
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray

DRAFTINGS: dict[str, Drafting] = {
    "a node, 4 drawn": iid_paths(4, 1),
    "a node, 2 certain, 2 drawn": mixed_tree([(2, 2)]),
    "paths, 8 x 4": iid_paths(8, 4),
    "prefix tree (2, 2, 2, 2)": prefix_tree([2, 2, 2, 2]),
    "mixed (1, 1) x 4": mixed_tree([(1, 1)] * 4),
    "32 certain nodes": top_tree(32, 6),
}


class Synthetic(Model):
    """Distributions that are new at every node."""

    name = "synthetic"
    vocab_size = 0

    def __init__(self, vocab_size: int, rng: np.random.Generator) -> None:
        self.vocab_size, self.rng = vocab_size, rng

    def start(self, context: IntArray) -> None:
        """Nothing depends on the context."""

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Gaussian."""
        return 3.0 * self.rng.normal(size=(len(nodes), self.vocab_size))

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Nothing depends on the context."""


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
    """Median time of a call, of the processor on a CPU; one more comes before."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = []
    for _ in range(rounds + 1):
        start = clock()
        action()
        if device != "cpu":
            torch.cuda.synchronize()
        found.append(1e3 * (clock() - start))
    return statistics.median(found[1:])


@click.command(help=__doc__)
@click.option("--vocab", default=128_256, type=click.IntRange(2), show_default=True)
@click.option("--rounds", default=5, type=click.IntRange(1), show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(vocab: int, rounds: int, device: str) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model, chooser = Synthetic(vocab, rng), RandomChooser(rng)
    shown = table("tree", "slots", "inner nodes", "CPU ms", f"torch on {device} ms")
    for name, drafting in DRAFTINGS.items():
        tree = drafting.draft(model, chooser)
        targets = np.empty((len(tree), vocab))
        for node in range(len(tree)):
            targets[node] = np.exp(rng.normal(size=vocab)) * tree.distributions.get(node, 1.0)
            targets[node] /= targets[node].sum()
        own = milliseconds(partial(Tournament().verify, tree, targets, chooser), rounds, "cpu")
        there = milliseconds(packed(tree, targets, device), rounds, device)
        sizes = tree.slots.nodes.size - 1, len(tree.distributions)
        shown.add_row(name, *map(str, sizes), f"{own:.1f}", f"{there:.1f}")
    console.print(shown)


if __name__ == "__main__":
    main()
