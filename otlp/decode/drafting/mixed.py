"""Trees with mixed nodes: the draft's most likely tokens, and tokens drawn from the rest."""

from __future__ import annotations

from collections.abc import Sequence

from otlp.checks import whole_number
from otlp.decode.drafting.fixed_shape import FixedShape, fixed_shape
from otlp.decode.drafting.growing import check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.decode.drafting.shaped import tree_shape
from otlp.errors import InvalidInputError


def certain_tree(parents: Sequence[int]) -> RuledDrafting:
    """Draft a given shape with the most likely tokens of each node, the most likely first.

    Parameters
    ----------
    parents : sequence of int
        The parent of each slot, as in `tree_shape`.

    Raises
    ------
    InvalidInputError
        If `parents` is not a tree, or has only a root.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.certain_tree([-1, 0, 0, 1]).length
    2
    """
    return RuledDrafting(fixed_shape([(below, ()) for below in tree_shape(parents).children]))


def mixed_tree(branching: Sequence[tuple[int, int]]) -> RuledDrafting:
    """Draft a tree of mixed nodes.

    Parameters
    ----------
    branching : sequence of (int, int)
        For each depth, the number of certain children of a node (the draft's most likely tokens)
        and the number of children drawn i.i.d. from the rest.

    Raises
    ------
    InvalidInputError
        If the sequence is empty, a depth has no children, or a number is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.mixed_tree([(1, 1), (0, 1)])
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> int(tree.tokens[1]) == int(draft.distribution(()).argmax())
    True
    """
    try:
        pairs = [tuple(pair) for pair in branching]
    except TypeError:
        pairs = []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise InvalidInputError(
            "branching must be a pair (number of certain children, number of drawn children) for "
            f"each depth, got {branching!r:.60}"
        )
    slots = level = 1
    for depth, (certain, drawn) in enumerate(pairs, start=1):
        whole_number(certain, f"the number of certain children at depth {depth}", 0)
        whole_number(drawn, f"the number of drawn children at depth {depth}", 0)
        whole_number(certain + drawn, f"the number of children at depth {depth}")
        level *= certain + drawn
        slots += level
        check_slots(slots)
    # The state is the remaining depth.
    below = (((i,) * certain, (i,) * drawn) for i, (certain, drawn) in enumerate(reversed(pairs)))
    return RuledDrafting(FixedShape((((), ()), *below)))
