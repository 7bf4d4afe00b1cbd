"""A linear program with information constraints: the best rule that sees only what was drafted.

The bound of a drafting (`drafting_lp`) is reached, pair by pair, by a rule made for that pair.  A
verification algorithm does not know the pair: it sees the distributions of both models at the
drafted nodes.  Over a finite family of pairs, two that look alike on a drafted tree must be treated
alike there, and the rule must be lossless for each: that is a linear program too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from otlp.decode import Drafting
from otlp.decode.laws.round_laws import draft_trees
from otlp.decode.laws.written_program import WrittenProgram
from tests.otlp.decode.tabular_rounds import Pair

Path = tuple[int, ...]
Look = frozenset[tuple[Path, bytes, bytes | None]]
"""What a drafted tree shows: its prefixes, the target's distributions, the draft's where asked."""


def on_tree_optimum(
    pairs: Sequence[Pair], drafting: Drafting, weights: Sequence[float] | None = None
) -> float:
    """Mean block efficiency of the best rule that sees the drafted tree only.

    The rule answers with an accepted node and a correction, given the drafted prefixes and the
    distributions of both models there: the target's at all, the draft's where it was asked.  It
    must be lossless for every pair of the family.  That bounds every rule that is lossless for all
    pairs there are, and one reaches it where the family is a product: for each prefix some
    distributions, and all combinations of them.

    A column for each look of a drafted tree, node of it and correction.  A row for each pair,
    prefix and next token: A(xy) + (mass of corrections y at x) = A(x) p(y | x), which is what
    lossless means.
    """
    chances = [1.0 / len(pairs)] * len(pairs) if weights is None else weights
    looks = [_looks(pair, drafting) for pair in pairs]
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


def _looks(pair: Pair, drafting: Drafting) -> dict[Look, float]:
    """What the drafted trees of a pair show, with probabilities."""
    draft, target = pair
    found: defaultdict[Look, float] = defaultdict(float)
    for tree, mass in draft_trees(draft, drafting):
        nodes = [tuple(tree.path(node).tolist()) for node in range(len(tree))]
        asked = {nodes[node]: q.tobytes() for node, q in tree.distributions.items()}
        found[frozenset((x, target.distribution(x).tobytes(), asked.get(x)) for x in nodes)] += mass
    return found
