"""Equality: go down the tree along the target's own draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.checks import own_float_errors
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
    """Accept a drafted token if it is what the target draws: for targets that draw by a seed.

    Of a `GumbelMax` target the text is token for token the one of plain decoding with its seed,
    whatever was drafted.  No distribution of the draft is looked at, nothing is drawn.

    Parameters
    ----------
    calibration : Calibration, optional
        Of the draft that `models` makes; by default that of the pair if it ships.

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
    name: ClassVar[str] = "equality"

    def drafting(self, paths: int, length: int) -> Drafting:
        """A tree of K L nodes, the likeliest given the noise, in up to L draft calls."""
        return top_tree(paths * length, length)

    def models(self, draft: Model, target: Model, seed: Seed) -> tuple[Model, Model]:
        """Share the noise of a seed; see `with_shared_noise`."""
        return with_shared_noise(draft, target, seed, self.calibration)

    @own_float_errors
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Go down the tree; see `Verification.verify`.

        Raises
        ------
        InvalidInputError
            If the target is not certain of what it draws.
        """
        node = 0
        while True:
            drawn = int(np.argmax(targets[node]))
            if targets[node, drawn] < 1.0:
                raise InvalidInputError(
                    f"equality needs a target that is certain of what it draws, and this one gives "
                    f"its likeliest token {targets[node, drawn]:.3g}: wrap it in GumbelMax, or "
                    "verify with target-only, which draws from it"
                )
            below = [n for n in tree.draws.get(node, ()) if tree.tokens[n] == drawn]
            if not below:
                return Outcome(node, targets[node])
            node = int(below[0])
