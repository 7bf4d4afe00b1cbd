"""Target-only verification: sample from the target, and continue if the token was drafted."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfTrees, Outcome, follow
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class TargetOnly(OfTrees):
    """Sample from the target at each node; continue if the token was drafted.

    Engines use this rule for deterministic trees (EAGLE-2, SGLang; the naive sampling of SpecInfer,
    Miao et al. 2024), where no rule accepts more.  The draft's distributions are not used.  O(V)
    for each accepted token.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), decode.TargetOnly())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    1.9506
    """

    name = "target-only"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Verify the tree from the root; see `Verification.verify`."""
        return follow(tree, targets, chooser, lambda node: targets[node])
