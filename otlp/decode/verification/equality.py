"""Sampled verification: follow the target's own draws down the tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, top_tree
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.gumbel import with_shared_noise
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfTrees, Outcome
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed


@dataclass(frozen=True)
class Equality(OfTrees):
    """Accept a draft token if it equals the target's draw; for targets that draw with a seed.

    With a `GumbelMax` target the text equals the text of plain decoding with the same seed, token
    for token, whatever the draft.  The rule does not use the draft's distributions or randomness.

    Parameters
    ----------
    calibration : Calibration, optional
        Calibration of the draft that `models` makes; by default the pair's calibration if it
        ships, otherwise one that suits most pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> pair = decode.random_pair(4, 9, np.random.default_rng(0))
    >>> rule = decode.Equality()
    >>> draft, target = rule.models(*pair, seed=7)
    >>> draft.start(()); target.start(())
    >>> drafting = rule.drafting(2, 3)
    >>> rng = np.random.default_rng()
    >>> decode.play_round(draft, target, drafting, rule, rng).tokens.tolist()
    [2, 1]
    """

    calibration: Calibration | None = None
    name = "equality"

    def drafting(self, paths: int, length: int) -> Drafting:
        """Return a tree of the K L most likely nodes given the noise, in up to L draft calls."""
        return top_tree(paths * length, length)

    def models(self, draft: Model, target: Model, seed: Seed) -> tuple[Model, Model]:
        """Return draft and target that share the noise of a seed; see `with_shared_noise`."""
        return with_shared_noise(draft, target, seed, self.calibration)

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Follow the target's draws; see `Verification.verify`.

        Raises
        ------
        InvalidInputError
            If the target is not deterministic.
        """
        node = 0
        while True:
            drawn = int(np.argmax(targets[node]))
            if targets[node, drawn] < 1.0:
                raise InvalidInputError(
                    "equality needs a deterministic target, got probability "
                    f"{targets[node, drawn]:.3g} for the most likely token: wrap the target in "
                    "GumbelMax, or verify with target-only, which samples from the target"
                )
            below = [n for n in tree.draws.get(node, ()) if tree.tokens[n] == drawn]
            if not below:
                return Outcome(node, targets[node])
            node = int(below[0])
