"""Text renewal of trees that grow by the target's noise: sampled, given that it wrote the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otlp.decode.drafting import TopTree
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.gumbel import Perturbed
from otlp.decode.models.model import Model
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed, exponentials, row_key
from otlp_lab.design.text_renewal import Renewal, WrittenText
from otlp_lab.design.top_trees import top_tree_renewal

CLOCK = 2**62
"""Added to a place: its key is that of the time at which the written token wins."""


class AlongText(Perturbed):
    """A draft at the beginning of a text, and noise that lets its target write the text.

    The written token wins at a time t ~ Exp(1), at which its own variable is p t; that of another
    token is p t and an exponential variable more.

    Parameters
    ----------
    draft : Model
        At the beginning of the text.
    text : WrittenText
        Over the whole vocabulary.
    seed : int or sequence of int
    calibration : Calibration

    Raises
    ------
    InvalidInputError
        If the text is over another number of tokens than the draft; see `Perturbed`.
    """

    def __init__(
        self, draft: Model, text: WrittenText, seed: Seed, calibration: Calibration
    ) -> None:
        super().__init__(draft, seed, calibration)
        width = text.targets.shape[1]
        if width != draft.vocab_size:
            raise InvalidInputError(
                f"the text is over {width} tokens and the draft over {draft.vocab_size}: noise"
                " races over the whole vocabulary, so give texts as they were written"
            )
        self.text = text

    def noise(self, place: int) -> FloatArray:
        """Exponential variables of a place, counted from the text's beginning, shape (V,)."""
        row = super().noise(place)
        if place >= len(self.text):
            return row
        time = float(exponentials(row_key(self.seed, place + CLOCK), np.zeros(1, np.int64))[0])
        begun = time * self.text.targets[place]
        token = self.text.tokens[place]
        found: FloatArray = row + begun
        # a probability that underflows leaves it the winner
        found[token] = max(begun[token], np.finfo(np.float64).tiny)
        return found


def shared_noise_renewal(
    begun: Callable[[int], tuple[Model, IntArray]],
    texts: Sequence[WrittenText],
    drafting: TopTree,
    length: int,
    calibration: Calibration,
) -> Renewal:
    """Tokens and calls of trees by the noise, with equality, along texts that others drew.

    Parameters
    ----------
    begun, texts, drafting, length
        As for `top_tree_renewal`; the texts over the whole vocabulary.
    calibration : Calibration

    Notes
    -----
    Unbiased: one draw of the noise a place, given the text.  The draft's calls of a round, for
    every round.
    """

    def along(number: int) -> tuple[Model, IntArray]:
        draft, tokens = begun(number)
        return AlongText(draft, texts[number], number, calibration), tokens

    return top_tree_renewal(along, texts, drafting, length)
