"""Speculative sampling: verify one drafted path token by token."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfOnePath, Outcome
from otlp.distribution import FloatArray
from otlp.plan import residual_distribution


@dataclass(frozen=True)
class Speculative(OfOnePath):
    """Accept each token with probability min(1, p/q); stop at the first rejection.

    Source: Leviathan et al. 2023; Chen et al. 2023.  O(V) for the rejected token.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(1, 2), decode.Speculative())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.4545
    """

    name = "speculative"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Verify the path from the root; see `Verification.verify`."""
        node = 0
        while node in tree.draws:
            child = int(tree.draws[node][0])
            token = tree.tokens[child]
            p, q = targets[node], tree.distributions[node]
            if p[token] < q[token] and not chooser.accept(p[token] / q[token]):
                return Outcome(node, residual_distribution(p, q))
            node = child
        return Outcome(node, targets[node])
