"""Deterministic tree of the N most likely prefixes under the draft model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otlp.checks import number, whole_number
from otlp.decode.choosing import Chooser
from otlp.decode.drafting.drafting import Drafting
from otlp.decode.drafting.growing import check_slots
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree, Slots, TokenTree
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme
from otlp.drafts.certain_and_drawn import CertainAndDrawn
from otlp.numerics.top_tokens import top_tokens


@dataclass(frozen=True)
class TopTree(Drafting):
    """Draft the N prefixes of at most L tokens with the largest cumulative draft probability.

    This is the dynamic tree of EAGLE-2 (Li et al. 2024, section 4): each level is grown from its
    most likely nodes, and finally the N most likely nodes of all levels are kept.  These nodes form
    a tree, because a prefix is at least as likely as its continuations; ties go to the shorter
    prefix.

    Parameters
    ----------
    nodes : int
        Number of prefixes N; 0 drafts nothing.
    most : int
        Maximum path length L.
    width : int or None
        Number of nodes expanded per level and number of tokens per expanded node, as in EAGLE-2.
        None expands every node that can be among the N.
    least : float
        Minimum probability of a prefix.  Less likely prefixes are left out, so a tree has fewer
        than N nodes, or none, where the draft is unsure.

    Raises
    ------
    InvalidInputError
        If N is negative, L or the width is less than 1, or the least probability is outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.TopTree(nodes=4, most=3)
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> tree.tokens.size
    5
    """

    nodes: int
    most: int
    width: int | None = None
    least: float = 0.0
    kind_name = "deterministic"
    independent = True
    """All siblings are certain."""

    def __post_init__(self) -> None:
        check_slots(whole_number(self.nodes, "the number of nodes N", 0))
        whole_number(self.most, "the path length L")
        if self.width is not None:
            whole_number(self.width, "width")
        number(self.least, "the least probability of a prefix", 0.0, 1.0)

    @property
    def length(self) -> int:
        """Maximum path length L."""
        return min(self.nodes, self.most)

    @property
    def siblings(self) -> DraftScheme:
        """Example with two certain tokens."""
        return CertainAndDrawn([0, 1], np.full(3, 1.0 / 3.0), 0)

    def shortened(self, length: int) -> TopTree:
        """Return the drafting with paths cut to this length; 0 drafts nothing."""
        if not length:
            return replace(self, nodes=0)
        return replace(self, most=min(length, self.most))

    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Grow level by level, then keep the most likely nodes; see `Drafting.draft`."""
        tokens, parents, probs = [-1], [-1], [1.0]
        width = self.nodes if self.width is None else min(self.width, self.nodes)
        distributions: dict[int, FloatArray] = {}
        level = [0] if self.nodes else []
        for _ in range(self.length):
            # A node outside the N most likely nodes so far cannot be among them later.
            keep = set(self._most_likely(np.array(probs)).tolist())
            level = [node for node in level if node in keep or node == 0]
            level = sorted(level, key=lambda node: -probs[node])[:width]
            if not level:
                break
            so_far = TokenTree(np.array(tokens), np.array(parents))
            found = model.distributions(so_far, np.array(level))
            start = len(tokens)
            for node, q in zip(level, found, strict=True):
                distributions[node] = q
                top = top_tokens(q, width)
                tokens += top.tolist()
                parents += [node] * top.size
                probs += (probs[node] * q[top]).tolist()
            level = list(range(start, len(tokens)))
        kept = np.append(0, self._most_likely(np.array(probs)))
        numbers = np.full(len(tokens), -1)
        numbers[kept] = np.arange(kept.size)
        own = np.array(tokens)[kept]
        above = np.where(kept > 0, numbers[np.array(parents)[kept]], -1)
        inner = {int(numbers[node]): q for node, q in distributions.items() if numbers[node] >= 0}
        draws = {
            node: below for node in sorted(inner) if (below := np.flatnonzero(above == node)).size
        }
        schemes: dict[int, DraftScheme] = {
            node: CertainAndDrawn(own[below], inner[node], 0) for node, below in draws.items()
        }
        certain = np.arange(kept.size) > 0
        slots = Slots(np.arange(kept.size), above, certain, np.zeros(kept.size, dtype=bool))
        return DraftTree(own, above, schemes, inner, draws, slots)

    def _most_likely(self, probabilities: FloatArray) -> IntArray:
        """Return the nodes to keep, in their original order; ties go to the first node."""
        order = 1 + np.argsort(-probabilities[1:], kind="stable")
        best = np.sort(order[: self.nodes])
        return best[probabilities[best] >= self.least]


def top_tree(nodes: int, length: int, width: int | None = None, least: float = 0.0) -> TopTree:
    """Draft the deterministic tree of the draft's N most likely prefixes; see `TopTree`.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.top_tree(4, 3)
    TopTree(nodes=4, most=3, width=None, least=0.0)
    """
    return TopTree(nodes, length, width, least)
