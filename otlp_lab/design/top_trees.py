"""Text renewal of deterministic trees, which are drafted along the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from otlp.decode.choosing import RandomChooser
from otlp.decode.drafting import TopTree
from otlp.decode.models.model import Model
from otlp.decode.tree import ROOT, DraftTree, TokenTree
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.errors import InvalidInputError
from otlp.numerics.top_tokens import top_tokens
from otlp_lab.design.text_renewal import Renewal, WrittenText

SLACK = 0.8
"""Factor between two computations of the same probability: models in low precision give different
numbers for the same prefix if other nodes are in the same call."""


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
    One draft call for the whole text, and one for each level of each tree; a tree grows only while
    its nodes can matter for the text.

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
    return top_tree_renewals(begun, texts, drafting, length, [drafting.nodes])[0]


def top_tree_renewals(
    begun: Callable[[int], tuple[Model, IntArray]],
    texts: Sequence[WrittenText],
    drafting: TopTree,
    length: int,
    budgets: Sequence[int],
) -> list[Renewal]:
    """Compute the renewal of the n most likely nodes of a tree, for each budget n; one growth.

    Parameters
    ----------
    begun, texts, drafting, length
        See `top_tree_renewal`.
    budgets : sequence of int
        Numbers of nodes n, at most `drafting.nodes`.  The n most likely nodes of a larger tree are
        the tree of n nodes, if the drafting has no `width`.

    Raises
    ------
    InvalidInputError
        If the drafting has a `width` and a budget is not its number of nodes.
    """
    if drafting.width is not None and set(budgets) != {drafting.nodes}:
        raise InvalidInputError(
            f"budgets must be [{drafting.nodes}] for a drafting with a width, got {list(budgets)}"
        )
    ranks = []
    for number, text in enumerate(texts):
        floors = _floors(*begun(number), drafting, text.starts(length))
        # Begin again: within a round, a model may keep the rows of the nodes of an earlier tree.
        ranks.append(text_ranks(*begun(number), drafting, floors))
    return [Renewal.of(_profile(row < nodes) for row in ranks) for nodes in budgets]


def _profile(accepted: Mask) -> FloatArray:
    """Return r_l = A/P, see `renew`, for prefixes that are either accepted or not."""
    return np.pad(accepted.astype(np.float64), ((0, 0), (1, 0)), constant_values=1.0)


def text_ranks(draft: Model, tokens: IntArray, drafting: TopTree, floors: FloatArray) -> IntArray:
    """Return the ranks of the text's prefixes in the trees drafted at each place.

    Parameters
    ----------
    draft : Model
        Draft at the beginning of the text.
    tokens : ndarray of int64, shape (T,)
        Token ids of the text.
    drafting : TopTree
    floors : ndarray, shape (starts,)
        Least probability of a node that matters at each place; see `_floors`.

    Returns
    -------
    ndarray of int64, shape (starts, L)
        Entry l: rank of the next l + 1 tokens among the drafted prefixes by probability; the most
        likely prefix has rank 0.  `drafting.nodes` if the tree does not contain them.
    """
    chooser = RandomChooser(np.random.default_rng(0))  # Not used: nothing is drawn.
    ranks = np.full((len(floors), drafting.length), drafting.nodes)
    for place, floor in enumerate(floors.tolist()):
        tree: TokenTree = ROOT
        if np.isfinite(floor):
            tree = grown = replace(drafting, least=floor).draft(draft, chooser)
            order, node = _ranks(grown), 0
            for depth, token in enumerate(tokens[place : place + drafting.length].tolist()):
                below = grown.draws.get(node, np.empty(0, dtype=np.int64))
                held = below[grown.tokens[below] == token]
                if not held.size:
                    break
                node = int(held[0])
                ranks[place, depth] = order[node]
        draft.advance(tree, 0, int(tokens[place]))
    return ranks


def _floors(draft: Model, tokens: IntArray, drafting: TopTree, starts: int) -> FloatArray:
    """Return the least probability of a node that matters at each place; infinity if none matters.

    The draft's distributions along the text contain some nodes of each tree: the text's prefixes
    and their siblings.  A prefix with at least N more probable nodes among these cannot be drafted.
    For the other prefixes only the nodes that are at least as probable matter.  With `width` not
    all siblings are candidates, and every node matters.
    """
    if drafting.width is not None:
        return np.full(starts, drafting.least)
    every = np.arange(starts + drafting.length - 1)
    trunk = TokenTree(np.append(-1, tokens[every[:-1]]), every - 1)
    along = draft.distributions(trunk, every)
    tops = np.stack([row[top_tokens(row, drafting.nodes)] for row in along])
    found = np.full(starts, np.inf)
    for place in range(starts):
        here = every[place : place + drafting.length]
        probs = np.cumprod(along[here, tokens[here]])
        siblings = SLACK * np.append(1.0, probs[:-1])[:, None] * tops[here]
        drafted = [p for p in probs if np.count_nonzero(siblings > p) < drafting.nodes]
        if drafted:
            found[place] = max(drafting.least, SLACK * float(min(drafted)))
    return found


def _ranks(tree: DraftTree) -> IntArray:
    """Return the rank of each node by probability, -1 for the root; ties go to the first node."""
    probs = np.ones(len(tree))
    for node in range(1, len(tree)):
        parent = int(tree.parents[node])
        probs[node] = probs[parent] * tree.distributions[parent][tree.tokens[node]]
    ranks = np.full(len(tree), -1)
    ranks[1 + np.argsort(-probs[1:], kind="stable")] = np.arange(len(tree) - 1)
    return ranks
