"""Autoregressive baseline: sample the next token from the target, accept no draft token."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, no_draft
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfTrees, Outcome
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class Autoregressive(OfTrees):
    """Ignore the draft; intended for `otlp.decode.no_draft()`, valid on every tree.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.no_draft(), decode.Autoregressive())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    1.0
    """

    name = "autoregressive"

    def drafting(self, paths: int, length: int) -> Drafting:
        """Return a drafting without draft tokens."""
        return no_draft()

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Accept only the root; see `Verification.verify`."""
        return Outcome(0, targets[0])
