"""Drafted trees as `otlp.batched.verify_tree` takes them, and the exact law of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from otlp import batched
from otlp.batched.branches import NodeStates
from otlp.batched.trees import _nodes, ending_at, play
from otlp.decode import Drafting, DraftTree, TabularModel
from otlp.decode.laws.round_laws import RoundLaw, Tally, draft_trees
from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import Score


class Trees(NamedTuple):
    """Trees of many rows, padded."""

    target: Any
    draft: Any
    tokens: Any
    shape: batched.TreeShape
    nodes: Any


def pack(trees: Sequence[DraftTree], target: TabularModel, dtype: Any = torch.float64) -> Trees:
    """One row for each tree; rows of nodes without children are NaN in the draft."""
    size, width = max(len(tree) for tree in trees), target.tables[0].shape[-1]
    slots = max(tree.slots.nodes.size for tree in trees)
    p, q = np.zeros((len(trees), size, width)), np.full((len(trees), size, width), np.nan)
    tokens, parents = np.full((2, len(trees), slots), batched.PADDING)
    certain, last = np.zeros((2, len(trees), slots), dtype=bool)
    nodes = np.zeros((len(trees), slots), dtype=np.int64)
    target.start(np.empty(0, dtype=np.int64))
    for row, tree in enumerate(trees):
        count = tree.slots.nodes.size
        p[row, : len(tree)] = target.distributions(tree, np.arange(len(tree)))
        for node, distribution in tree.distributions.items():
            q[row, node] = distribution
        tokens[row, :count] = tree.tokens[tree.slots.nodes]
        parents[row, :count], nodes[row, :count] = tree.slots.parents, tree.slots.nodes
        certain[row, :count], last[row, :count] = tree.slots.certain, tree.slots.last
    shape = batched.TreeShape(*map(torch.from_numpy, (parents, certain, last)))
    rows = (torch.from_numpy(part).to(dtype) for part in (p, q))
    return Trees(*rows, torch.from_numpy(tokens), shape, torch.from_numpy(nodes))


def as_score(states: NodeStates, row: int) -> Score:
    """One score as the CPU has it: without the cells that are left out."""
    parts = [part[row].numpy() for part in states.scores]
    edges, widths, wins, masses, powers, left, slopes = parts
    kept = masses > 0.0
    ends = np.logaddexp(edges[kept][-1], widths[kept][-1])
    return Score(
        np.append(edges[kept], ends), widths[kept], wins[kept], masses[kept], powers,
        left[:, kept], slopes[:, kept],
    )  # fmt: skip


def tree_law(
    draft: TabularModel, target: TabularModel, drafting: Drafting, dtype: Any = torch.float64
) -> RoundLaw:
    """Law of a round of `verify_tree`, by enumeration of all trees that can be drafted.

    NodeStates, shares, weights and residuals are its own.  How likely each score is to be the
    largest is an integral, which the CPU works out; that scores are drawn so is a test of its own.
    """
    trees, chances = zip(*draft_trees(draft, drafting), strict=True)
    packed = pack(trees, target, dtype)
    plan = packed.shape.plan(packed.target.device)
    known = _nodes(packed.target, packed.draft, packed.tokens.clamp(min=0), packed.nodes)
    field = play(known, plan)
    size = packed.shape.slots
    players: list[list[tuple[Score, list[tuple[int, float]]]]] = [[] for _ in trees]
    share = field.share.numpy()
    for states, slots in field.candidates:
        for row, slot in enumerate(slots.tolist()):
            if states.live[row, 0]:
                tree, at = divmod(slot, size)
                ends = np.flatnonzero(plan.ending[tree] & (plan.parents[tree] == at))
                below = [(int(end), float(share[tree * size + end])) for end in ends]
                players[tree].append((as_score(states, row), below or [(at, 1.0)]))
    # every way a path can win, and the probability that it does
    leaves, masses = [], []
    for tree, (candidates, chance) in enumerate(zip(players, chances, strict=True)):
        won = best_score([score for score, _ in candidates]) if candidates else np.ones(1)
        won = chance * won / won.sum()
        for (_, below), mass in zip(candidates or [(None, [(0, 1.0)])], won, strict=True):
            whole = sum(part for _, part in below)
            leaves += [tree * size + slot for slot, part in below if part > 0.0]
            masses += [mass * part / whole for _, part in below if part > 0.0]
    tally = Tally(target, drafting.length)
    mass = np.array(masses)
    paths = plan.ancestors.flatten(0, 1)[leaves].numpy()
    rows = np.array(leaves) // size
    for depth in range(drafting.length, -1, -1):
        some = np.flatnonzero(paths[:, depth : depth + 1] >= 0) if depth < paths.shape[1] else []
        if not len(some):
            continue
        slots = torch.from_numpy(rows[some] * size + paths[some, depth])
        stop, residual = (part.numpy() for part in ending_at(known, plan, field, slots))
        for path, tree, accepted, left in zip(
            paths[some], rows[some], mass[some] * stop[:, 0], residual, strict=True
        ):
            if accepted > 0.0:
                text = packed.tokens[tree, path[1 : depth + 1]].tolist()
                tally.add(text, accepted, left / left.sum())
        mass[some] *= 1.0 - stop[:, 0]
    return tally.law
