"""Target-only verification: sample from the target, and go on where that was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.checks import own_float_errors
from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfTrees, Outcome, follow
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class TargetOnly(OfTrees):
    """At each node sample from the target; go on if the token was drafted.

    What engines do with deterministic trees (EAGLE-2, SGLang; the
    naive sampling of SpecInfer, Miao et al. 2024), where nothing accepts more.  The draft's
    distributions are not looked at.  O(V) for each accepted token.

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

    name: ClassVar[str] = "target-only"

    @own_float_errors
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Go down the tree; see `Verification.verify`."""
        return follow(tree, targets, chooser, lambda node: targets[node])
