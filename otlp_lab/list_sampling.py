"""Gumbel-max list sampling: drafts and target share one stream of exponential variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability, supported_if
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification, follow
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import SizeLimitError

MOST_TERMS = 10_000_000
"""Maximum number of products of exponentials, V^n, integrated at a node with n drawn children."""

LARGEST_RATIO = 1e300
"""Cap of p / q: a draft token with a larger ratio is the target's token almost surely."""


def race_conditional(p: FloatArray, q: FloatArray, drawn: IntArray) -> FloatArray:
    """Compute the distribution of the target's token given the draft tokens, shape (V,).

    Let S_ik be independent exponential variables of mean 1.  Draft k is the token i with the
    smallest S_ik / q_i, and the target's token has the smallest min_k S_ik / p_i.  So each draft
    has the distribution q, the target's token has p, and they often agree.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Distributions of target and draft.
    drawn : ndarray of int64, shape (n,)
        Draft tokens, each with q > 0.

    Raises
    ------
    SizeLimitError
        If there are more than `MOST_TERMS` products of exponentials.

    Notes
    -----
    Sort the tokens by r = p/q.  Let A_j be the sum of q over the first j tokens, and c_j the sum
    over all tokens of max(q r_j, p).  The probability that draft k is x and that no token of its
    list precedes the target's time t is

        G_x(t) = q_x sum over j >= x of (exp(-t c_j) - exp(-t c_(j+1))) / A_j.

    The part in which token y is first in the target's race at t is the same sum over x <= j < y,
    and exp(-t c_x) for y = x.  The distribution is the integral over t of p_y times the sum over
    drafts of this part times the G of the other drafts: sums of exponentials, O(V^n).
    """
    order = np.flatnonzero(q)
    with np.errstate(over="ignore"):
        ratios = np.minimum(p[order] / q[order], LARGEST_RATIO)
    ascending = np.argsort(ratios, kind="stable")
    order, ratios = order[ascending], ratios[ascending]
    size, drafts = order.size, drawn.size
    if float(size) ** drafts > MOST_TERMS:
        raise SizeLimitError(
            f"list sampling needs {float(size) ** drafts:,.0f} terms ({size} tokens for each of "
            f"{drafts} drafts), more than the limit of {MOST_TERMS:,}: draft fewer paths, or use "
            "otlp_lab.one_stream.list_decoding, which samples the stream"
        )
    rank = np.full(p.size, size)
    rank[order] = np.arange(size)
    before = np.cumsum(q[order])
    # If the ratio was capped, p is the larger of q r and p.
    counted = ratios < LARGEST_RATIO
    faster, slower = np.cumsum(np.where(counted, [q[order], p[order]], 0.0), axis=1)
    rates = ratios * faster + (p.sum() - slower)
    # Coefficients of exp(-t c_j) in G_x / q_x.
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
    """Verification by Gumbel-max list sampling, with the random stream integrated out.

    Source: Rowan, Phan and Khisti 2025, Gumbel-max list sampling (arXiv:2506.05632).  At each node
    the next token is drawn from its distribution given the drafts that share the accepted prefix;
    there is no rejection and no residual.  The stream is integrated out, so a round can be
    enumerated.  `otlp_lab.one_stream.list_decoding` decodes with the stream: for one seed its text
    does not depend on the draft.

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
        """Support all trees of i.i.d. siblings."""
        siblings = drafting.siblings
        return supported_if(
            drafting.independent and (siblings is None or isinstance(siblings, IID)),
            f"{self.name} needs i.i.d. siblings, got {drafting.kind_name} draws: use iid_paths, "
            "prefix_tree, or traversal",
        )

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Verify a tree from the root down; see `Verification.verify`."""

        def next_token(node: int) -> FloatArray:
            return race_conditional(targets[node], tree.distributions[node], tree.drawn(node))

        return follow(tree, targets, chooser, next_token)
