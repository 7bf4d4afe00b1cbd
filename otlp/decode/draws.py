"""How the children of one node are drawn, one token after the other."""

from __future__ import annotations

from enum import Enum

import numpy as np

import otlp
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme

__all__ = ["Draws"]


class Draws(Enum):
    """The ways of drawing n children from a next-token law q; values are the public names."""

    IID = "iid"
    """n i.i.d. tokens; a token that comes twice is one child with two draws."""
    WITHOUT_REPLACEMENT = "without-replacement"
    """n different tokens, each from q renormalised off the earlier ones."""
    HUB = "hub"
    """SpecHub's pairs: one of the two is the most likely token (SpecHub, section 4)."""
    GREEDY = "greedy"
    """The n - 1 most likely tokens, and one drawn from the rest (Hu et al. 2025)."""

    def next_law(self, law: FloatArray, drawn: IntArray, n: int) -> FloatArray | None:
        """Law of the next token given those already drawn at this node.

        Parameters
        ----------
        law : ndarray, shape (V,)
            The next-token law q.
        drawn : ndarray of int64
            Tokens drawn so far, fewer than n.
        n : int
            How many are to be drawn.

        Returns
        -------
        ndarray, shape (V,), or None
            None if no token is left.
        """
        if self is Draws.IID:
            return law
        if self is Draws.HUB:
            hub = int(np.argmax(law))
            if drawn.size == 0:
                return law
            return _off(law, drawn) if drawn[0] == hub else _point(law.size, hub)
        if self is Draws.GREEDY and drawn.size < n - 1:
            rest = _off(law, drawn)
            return None if rest is None else _point(law.size, int(np.argmax(rest)))
        return _off(law, drawn)

    def scheme(self, law: FloatArray, n: int) -> DraftScheme:
        """Law of the ordered n-tuple, n >= 2, as the single-step solvers take it."""
        name = {
            Draws.IID: "IID",
            Draws.WITHOUT_REPLACEMENT: "WithoutReplacement",
            Draws.HUB: "Hub",
            Draws.GREEDY: "Greedy",
        }[self]
        kind = getattr(otlp, name)
        made: DraftScheme = kind(law) if self is Draws.HUB else kind(law, n)
        return made


def _off(law: FloatArray, drawn: IntArray) -> FloatArray | None:
    rest = law.copy()
    rest[drawn] = 0.0
    total = float(rest.sum())
    if total <= 0.0:
        return None
    rest /= total
    return rest


def _point(size: int, token: int) -> FloatArray:
    law = np.zeros(size)
    law[token] = 1.0
    return law
