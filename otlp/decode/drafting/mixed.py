"""Mixed nodes: the draft's most likely tokens for certain, and more drawn from the rest."""

from __future__ import annotations

from collections.abc import Sequence

from otlp.checks import whole_number
from otlp.decode.drafting.fixed_shape import FixedShape, fixed_shape
from otlp.decode.drafting.growing import check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.decode.drafting.shaped import tree_shape
from otlp.errors import InvalidInputError


def certain_tree(parents: Sequence[int]) -> RuledDrafting:
    """Draft a given shape with the likeliest tokens of each node, its first child the likeliest.

    Parameters
    ----------
    parents : sequence of int
        The parent of each slot, as `tree_shape` takes it.

    Raises
    ------
    InvalidInputError
        If it is no tree, or has only a root.

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
        For each depth, how many children of a node are certain (the draft's most likely tokens)
        and how many are drawn i.i.d. from the rest.

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
            f"branching is {branching!r:.60}: give for each depth a pair, how many children are "
            "certain and how many are drawn"
        )
    slots = level = 1
    for depth, (sure, drawn) in enumerate(pairs, start=1):
        whole_number(sure, f"the number of certain children at depth {depth}", 0)
        whole_number(drawn, f"the number of drawn children at depth {depth}", 0)
        whole_number(sure + drawn, f"the number of children at depth {depth}")
        level *= sure + drawn
        slots += level
        check_slots(slots)
    # the state is the depth left
    below = (((at,) * sure, (at,) * drawn) for at, (sure, drawn) in enumerate(reversed(pairs)))
    return RuledDrafting(FixedShape((((), ()), *below)))
