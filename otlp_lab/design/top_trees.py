"""Text renewal of deterministic trees, which are drafted along the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otlp.decode.choosing import RandomChooser
from otlp.decode.drafting import TopTree
from otlp.decode.models.model import Model
from otlp.distribution import IntArray
from otlp_lab.design.text_renewal import Renewal, WrittenText


def top_tree_renewal(
    begun: Callable[[int], tuple[Model, IntArray]],
    texts: Sequence[WrittenText],
    drafting: TopTree,
    length: int,
) -> Renewal:
    """Compute tokens and calls of a deterministic tree with target-only verification along texts.

    Given a text there is no randomness: a round accepts the longest drafted prefix of the text.

    Parameters
    ----------
    begun : callable
        Maps the index of a text to the draft model at the beginning of the text, and its token ids.
    texts : sequence of WrittenText
    drafting : TopTree
    length : int
        Maximum round length, at least that of the drafting.  Renewals with the same length are over
        the same rounds.

    Notes
    -----
    The cost is the draft calls of every round.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import TopTree, random_pair
    >>> from otlp_lab.design import top_tree_renewal
    >>> from otlp_lab.design.written_texts import write_text
    >>> draft, target = random_pair(3, 8, np.random.default_rng(0))
    >>> text = write_text(draft, target, np.array([0]), 6, np.random.default_rng(1))
    >>> def begun(number):
    ...     draft.start([0])
    ...     return draft, text.tokens
    >>> found = top_tree_renewal(begun, [text], TopTree(nodes=3, most=2), 2)
    >>> found.efficiency >= 1.0
    True
    """
    chooser = RandomChooser(np.random.default_rng(0))
    found = []
    for number, text in enumerate(texts):
        (draft, tokens), starts = begun(number), text.starts(length)
        place = calls = 0
        while place < starts:
            tree = drafting.draft(draft, chooser)
            node = accepted = 0
            while below := [
                int(child)
                for child in tree.draws.get(node, ())
                if tree.tokens[child] == tokens[place + accepted]
            ]:
                node, accepted = below[0], accepted + 1
            draft.advance(tree, node, int(tokens[place + accepted]))
            place += accepted + 1
            calls += 1
        found.append((float(place), float(calls)))
    return Renewal(*(tuple(some) for some in zip(*found, strict=True)))
