"""Gumbel-max list sampling: drafts and target race over one stream of exponential variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification, follow
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import Capability, SizeLimitError

MOST_TERMS = 10_000_000
"""Products of exponentials, V^n, that are integrated at a node with n drawn children."""

LARGEST_RATIO = 1e300
"""Of p to q; beyond that a draft's token is the target's as good as always."""


def race_conditional(p: FloatArray, q: FloatArray, drawn: IntArray) -> FloatArray:
    """Law of the target's winner, given the drafts' winners, shape (V,).

    With S_ik independent and exponential of mean 1, draft k is the token with the least S_ik / q_i,
    and the target takes that with the least min_k S_ik / p_i: so each draft follows q, the target
    p, and they often agree.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        The target's and the draft's distribution.
    drawn : ndarray of int64, shape (n,)
        The drafts' winners, each with q > 0.

    Raises
    ------
    SizeLimitError
        If there are more than `MOST_TERMS` products of exponentials.

    Notes
    -----
    Sort the tokens by r = p/q, and let A_j be the draft's mass of the first j, and
    c_j = sum of max(q r_j, p).  That draft k wins with x and nothing in its list comes before the
    target's time t has the probability

        G_x(t) = q_x sum over j from x on of (exp(-t c_j) - exp(-t c_(j+1))) / A_j,

    its part in which token y is in front of the target's race at t the same sum over j from x to
    before y, and exp(-t c_x) for y = x.  The law is the integral over t of p_y times the sum over
    drafts of that part, times the G of the other drafts: sums of exponentials, O(V^n).
    """
    order = np.flatnonzero(q)
    with np.errstate(over="ignore"):
        ratios = np.minimum(p[order] / q[order], LARGEST_RATIO)
    ascending = np.argsort(ratios, kind="stable")
    order, ratios = order[ascending], ratios[ascending]
    size, drafts = order.size, drawn.size
    if float(size) ** drafts > MOST_TERMS:
        raise SizeLimitError(
            f"list sampling would add up {float(size) ** drafts:,.0f} terms, {size} tokens for "
            f"each of {drafts} drafts, more than the limit of {MOST_TERMS:,}: draft fewer paths, "
            "or decode with otlp_lab.one_stream.list_decoding, which draws the stream itself"
        )
    rank = np.full(p.size, size)
    rank[order] = np.arange(size)
    before = np.cumsum(q[order])
    # where the ratio was cut off, p is the larger one
    counted = ratios < LARGEST_RATIO
    faster, slower = np.cumsum(np.where(counted, [q[order], p[order]], 0.0), axis=1)
    rates = ratios * faster + (p.sum() - slower)
    # with G_x / q_x as coefficients of exp(-t c_j)
    steps = 1.0 / before
    wins = np.zeros((drafts, size))
    for at, x in enumerate(rank[drawn].tolist()):
        wins[at, x:] = steps[x:]
        wins[at, x + 1 :] -= steps[x:-1]
    sums = rates
    for _ in range(drafts - 1):
        sums = sums[..., None] + rates
    found = np.zeros(p.size)
    for at, x in enumerate(drawn.tolist()):
        left = 1.0 / sums
        for other in range(drafts):
            if other != at:
                left = wins[other] @ left
        parts = (left - np.append(left[1:], 0.0)) * steps
        ahead = np.append(0.0, np.cumsum(parts))
        share = np.maximum(ahead[rank] - ahead[rank[x]], 0.0)
        share[x] = left[rank[x]] / q[x]
        found += p * share
    return found


@dataclass(frozen=True)
class ListSampling(Verification):
    """Go down the tree by the law of the target's winner, given the drafts' winners.

    Source: Rowan, Phan and Khisti 2025, Gumbel-max list sampling (arXiv:2506.05632), at each node
    the coupling of those drafts that share the accepted prefix.  No rejection, no residual.  Here
    the stream is integrated out, so that a round can be enumerated; decoding in which text does
    not depend on the draft, for one seed, is `otlp_lab.one_stream.list_decoding`.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> from otlp_lab.list_sampling import ListSampling
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), ListSampling())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.5255
    """

    name: ClassVar[str] = "list-sampling"

    def supports(self, drafting: Drafting) -> Capability:
        """Take every tree of i.i.d. siblings."""
        siblings = drafting.siblings
        if drafting.independent and (siblings is None or isinstance(siblings, IID)):
            return Capability(True)
        return Capability(
            False,
            f"{self.name} needs siblings that are drawn i.i.d., not with {drafting.kind_name} "
            "draws: use iid_paths, prefix_tree, or traversal",
        )

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Go down the tree; see `Verification.verify`."""

        def next_token(node: int) -> FloatArray:
            return race_conditional(targets[node], tree.distributions[node], tree.drawn(node))

        return follow(tree, targets, chooser, next_token)
