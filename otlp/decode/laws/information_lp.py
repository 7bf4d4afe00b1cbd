"""Linear programs with information constraints: the best rule that sees only what was drafted.

The bound of a drafting (`drafting_lp`) is reached, pair by pair, by a rule made for that pair.  A
verification algorithm does not know the pair: it sees the distributions of both models at the
drafted nodes.  Over a finite family of pairs, two that look alike on a drafted tree must be treated
alike there, and the rule must be lossless for each: that is a linear program too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from otlp.checks import is_a, whole_number
from otlp.decode.drafting import Drafting, iid_paths
from otlp.decode.laws.round_laws import check_tabular, draft_trees
from otlp.decode.laws.written_program import WrittenProgram
from otlp.decode.models.model import check_pair
from otlp.decode.models.tabular import TabularModel
from otlp.distribution import FloatArray, as_distribution
from otlp.errors import InvalidInputError

MOST_CELLS = 1024
"""Cells that scores may be told apart by."""

Pair = tuple[TabularModel, TabularModel]
Path = tuple[int, ...]
Look = frozenset[tuple[Path, bytes, bytes | None]]
"""What a drafted tree shows: its prefixes, the target's distributions, the draft's where asked."""


def on_tree_optimum(
    pairs: Sequence[Pair], drafting: Drafting, weights: npt.ArrayLike | None = None
) -> float:
    """Mean block efficiency of the best rule that sees the drafted tree only.

    The rule answers with an accepted node and a correction, given the drafted prefixes and the
    distributions of both models there: the target's at all, the draft's where it was asked.  It
    must be lossless for every pair of the family.

    Parameters
    ----------
    pairs : sequence of (TabularModel, TabularModel)
        Drafts and targets, all over one vocabulary, with tables for at least L + 1 tokens.
    drafting : Drafting
        Of any kind.
    weights : array_like, shape (M,), optional
        Probability of each pair; by default all alike.

    Returns
    -------
    float
        With one pair its `drafting_optimum`.  An upper bound for every rule that is lossless for
        all pairs there are, reached by one where the family is a product: for each prefix some
        distributions, and all combinations of them.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If there are no pairs, tables end too early, vocabularies differ, or the weights are no
        distribution over the pairs.
    OTLPError
        If HiGHS finds no optimum.

    Notes
    -----
    A column for each look of a drafted tree, node of it and correction.  A row for each pair,
    prefix and next token: A(xy) + (mass of corrections y at x) = A(x) p(y | x), which is what
    lossless means.
    """
    chances = _family(pairs, drafting, weights)
    looks = [_looks(draft, target, drafting) for draft, target in pairs]
    inner = {x[:-1] for seen in looks for look in seen for x, _, _ in look if x}
    tokens = range(pairs[0][0].vocab_size)
    program = WrittenProgram("the family")
    known: dict[Look, int] = {}
    for at, ((_, target), seen, weight) in enumerate(zip(pairs, looks, chances, strict=True)):
        prefixes = {x for look in seen for x, _, _ in look}
        accepted = {x: program.row() for x in prefixes}
        follows = {(*x, y): program.row() for x in prefixes & inner for y in tokens}
        for x in prefixes:
            program.gain((at, x), weight)
            program.add(accepted[x], (at, x), -1.0)
            if x:
                program.add(accepted[x[:-1]], (at, x), 1.0)
                program.add(follows[x], (at, x), 1.0)
        for x, row in follows.items():
            program.add(row, (at, x[:-1]), -float(target.distribution(x[:-1])[x[-1]]))
        for look, mass in seen.items():
            fresh = look not in known
            if fresh:
                known[look] = program.row(1.0)
            for x, _, _ in look:
                # where nothing is ever drafted below, the correction follows the target
                for y in tokens if x in inner else (None,):
                    end = look, x, y
                    program.add(accepted[x], end, mass)
                    if y is not None:
                        program.add(follows[(*x, y)], end, mass)
                    if fresh:
                        program.add(known[look], end, 1.0)
    return program.largest()


def on_path_optimum(
    pairs: Sequence[Pair],
    paths: int,
    length: int,
    cells: int,
    weights: npt.ArrayLike | None = None,
) -> float:
    """Mean block efficiency of the best scores of K i.i.d. paths that look up their own path only.

    The score of a path is drawn from a distribution on `cells` equal cells of [0, 1], uniform
    within each; the largest of the K wins, and block verification runs on its path.  How a prefix's
    distribution is split among the next tokens is a function of both models' distributions along
    that prefix: such a rule is lossless for all pairs there are, as `two-slice` is one.

    Parameters
    ----------
    pairs, weights
        As in `on_tree_optimum`; the family is what the rule may know beforehand.
    paths, length : int
        K and L.
    cells : int
        How finely scores are told apart; with 1 nothing is selected.

    Returns
    -------
    float
        At most `on_tree_optimum`.  With one pair and many cells its `multipath_optimum`.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, OTLPError
        As `on_tree_optimum` does, and if K, L or `cells` is less than 1 or `cells` too large.

    Notes
    -----
    A column for each prefix, way its distributions can look, and cell.
    """
    if whole_number(cells, "cells") > MOST_CELLS:
        raise InvalidInputError(f"cells is {cells!r}: it must be at most {MOST_CELLS:,}")
    drafting = iid_paths(paths, length)
    chances = _family(pairs, drafting, weights)
    edges = np.arange(cells + 1) / cells
    # a score in a cell wins with the mean of K u^(K-1) there, in units of its mass
    wins = [cells * (b**paths - a**paths) for a, b in pairwise(edges.tolist())]
    program = WrittenProgram("the family")
    known: set[Hashable] = set()
    for (draft, target), weight in zip(pairs, chances, strict=True):
        program.gain("root", weight)
        level: list[tuple[Path, Hashable, float]] = [((), "root", 1.0)]
        while level and len(level[0][0]) < length:
            deeper: list[tuple[Path, Hashable, float]] = []
            for x, above, chance in level:
                p, q = target.distribution(x), draft.distribution(x)
                look = above, x, p.tobytes(), q.tobytes()
                children: list[tuple[Path, Hashable, float]] = [
                    ((*x, y), (look, y), chance * float(q[y])) for y in np.flatnonzero(q).tolist()
                ]
                deeper += children
                for _, column, _ in children:
                    program.gain(column, weight)
                if look in known:
                    continue
                known.add(look)
                _share_scores(program, above, children, p, wins)
            level = deeper
    program.add(program.row(1.0), "root", 1.0)
    for cell in range(cells):
        program.add(program.row(1.0 / cells), ("root", cell), 1.0)
    return program.largest()


def _share_scores(
    program: WrittenProgram,
    above: Hashable,
    children: list[tuple[Path, Hashable, float]],
    p: FloatArray,
    wins: list[float],
) -> None:
    """A prefix's scores go to its children, cell by cell; what wins is no more than is wanted."""
    for cell in range(len(wins)):
        mixed = program.row()
        program.add(mixed, (above, cell), -1.0)
        for _, column, _ in children:
            program.add(mixed, (column, cell), 1.0)
    for path, column, mass in children:
        drafted, won = program.row(mass), program.row(at_most=True)
        wanted = program.row(at_most=True)
        program.add(won, column, 1.0)
        program.add(wanted, column, 1.0)
        program.add(wanted, above, -float(p[path[-1]]))
        for cell, win in enumerate(wins):
            program.add(drafted, (column, cell), 1.0)
            program.add(won, (column, cell), -win)


def _family(
    pairs: Sequence[Pair], drafting: Drafting, weights: npt.ArrayLike | None
) -> list[float]:
    """Check a family of pairs; probabilities of its members."""
    is_a(pairs, Sequence, "pairs")
    if not pairs:
        raise InvalidInputError("there are no pairs: give at least one draft and target")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInputError(f"a pair is {pair!r:.60}: give (draft, target)")
        check_tabular(*pair, drafting)
        check_pair(*pair)
        check_pair(pair[0], pairs[0][0])
    if weights is None:
        return [1.0 / len(pairs)] * len(pairs)
    found = as_distribution(weights)
    if found.size != len(pairs):
        raise InvalidInputError(f"{found.size} weights for {len(pairs)} pairs: give one each")
    return [float(weight) for weight in found]


def _looks(draft: TabularModel, target: TabularModel, drafting: Drafting) -> dict[Look, float]:
    """What the drafted trees of a pair show, with probabilities."""
    found: defaultdict[Look, float] = defaultdict(float)
    for tree, mass in draft_trees(draft, drafting):
        nodes = [tuple(tree.path(node).tolist()) for node in range(len(tree))]
        asked = {nodes[node]: q.tobytes() for node, q in tree.model_distributions.items()}
        found[frozenset((x, target.distribution(x).tobytes(), asked.get(x)) for x in nodes)] += mass
    return found
