"""Text renewal of trees drafted with the target's noise, sampled given the target's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otlp.decode.models.calibration import Calibration
from otlp.decode.models.gumbel import Perturbed
from otlp.decode.models.model import Model
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed, exponentials, row_key
from otlp_lab.design.text_renewal import WrittenText

CLOCK = 2**62
"""Offset added to a position for the key of the time at which the written token wins."""


class AlongText(Perturbed):
    """Draft at the beginning of a text, with noise for which the target decodes this text.

    The written token wins at a time t ~ Exp(1), at which its own variable is p t.  The variable of
    another token is p t plus an independent exponential variable.

    Parameters
    ----------
    draft : Model
        Draft at the beginning of the text.
    text : WrittenText
        Text over the whole vocabulary.
    seed : int or sequence of int
    calibration : Calibration

    Raises
    ------
    InvalidInputError
        If text and draft have different vocabulary sizes; see also `Perturbed`.
    """

    def __init__(
        self, draft: Model, text: WrittenText, seed: Seed, calibration: Calibration
    ) -> None:
        super().__init__(draft, seed, calibration)
        width = text.targets.shape[1]
        if width != draft.vocab_size:
            raise InvalidInputError(
                f"the text must have the vocabulary of the draft, {draft.vocab_size} tokens, got "
                f"{width}: shared noise needs texts over the whole vocabulary"
            )
        self.text = text

    def noise(self, place: int) -> FloatArray:
        """Return the exponential variables of a position of the text, shape (V,)."""
        row = super().noise(place)
        if place >= len(self.text):
            return row
        time = float(exponentials(row_key(self.seed, place + CLOCK), np.zeros(1, np.int64))[0])
        elapsed = time * self.text.targets[place]
        token = self.text.tokens[place]
        found: FloatArray = row + elapsed
        # The written token must win even if its probability underflows.
        found[token] = max(elapsed[token], np.finfo(np.float64).tiny)
        return found


def along_texts(
    begun: Callable[[int], tuple[Model, IntArray]],
    texts: Sequence[WrittenText],
    calibration: Calibration,
) -> Callable[[int], tuple[Model, IntArray]]:
    """Return `begun` with drafts that know noise for which the target decodes the texts.

    With these drafts, `top_tree_renewals` computes tokens and calls of trees with shared noise and
    sampled verification.  The result is unbiased, with one draw of the noise per position given the
    text.

    Parameters
    ----------
    begun, texts
        See `top_tree_renewals`; the texts must be over the whole vocabulary.
    calibration : Calibration
    """

    def along(number: int) -> tuple[Model, IntArray]:
        draft, tokens = begun(number)
        return AlongText(draft, texts[number], number, calibration), tokens

    return along
