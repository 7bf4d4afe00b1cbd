"""Causal language models of Hugging Face behind the `Model` protocol.

A model is tried before it is taken (`otlp.decode.models.fitting`); how trees are scored is
`CachedModel`'s.  transformers and torch are imported when a model is loaded, not before.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from otlp.decode.models.cached import CachedModel
from otlp.decode.models.fitting import choose_tree_attention, has_sliding_windows
from otlp.decode.models.model import Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError


class HuggingFaceModel(CachedModel):
    """A causal language model of transformers that was found to fit, and its tokenizer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        In evaluation mode, on the device where it shall run.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        For text prompts and for `check_tokenizers`.
    sampling : Sampling, optional
        From logits to next-token distributions.
    name : str, optional
        What to call it; by default where it was loaded from.

    Raises
    ------
    InvalidInputError
        If the model is in training mode.
    UnsupportedProblemError
        If its cache cannot be rolled back, as in recurrent models, or its logits are not those of
        its plain forward.

    Notes
    -----
    Trying takes some eight calls on a dozen tokens, once for each model that transformers made and
    again if it was changed since.  After that a call costs one forward pass over
    the tokens that the cache lacks.  `advance` moves the accepted entries of the cache together
    and crops the rest, without a call.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        sampling: Sampling | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(model, name or model.config._name_or_path or type(model).__name__)
        self.tokenizer = tokenizer
        self.sampling = Sampling() if sampling is None else sampling
        if model.training:
            raise InvalidInputError(
                f"{self.name} is in training mode, where it drops out at random: call model.eval()"
            )
        self.slides = has_sliding_windows(self)
        self.tree_attention = choose_tree_attention(self)
        self.calls = 0
        self.reset()

    def encode(self, text: str, what: str = "the prompt") -> IntArray:
        """Token ids of a text, shape (T,); `what` is its name in an error.

        Raises
        ------
        InvalidInputError
            If the model came without a tokenizer, or the text has no tokens or half a character.
        """
        if self.tokenizer is None:
            raise InvalidInputError(f"{self.name} has no tokenizer: give token ids, not text")
        _check_characters(text, what)
        ids = np.asarray(self.tokenizer(text, verbose=False)["input_ids"], dtype=np.int64)
        if not ids.size:
            raise InvalidInputError(f"{what} is empty: give at least one token")
        return ids

    def encode_chat(self, messages: list[dict[str, str]]) -> IntArray:
        """Token ids of a chat up to the answer, shape (T,), by the tokenizer's template.

        Parameters
        ----------
        messages : list of dict
            Each with `role` and `content`.

        Raises
        ------
        InvalidInputError
            If the model came without a tokenizer or a template, or the template refuses the chat.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            raise InvalidInputError(
                f"{self.name} has no chat template: give the prompt as text, as it was trained"
            )
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # templates are programs, and raise what they like
            raise InvalidInputError(
                f"the chat template of {self.name} refuses the messages: {error!s:.200}"
            ) from error
        _check_characters(text, "the chat")
        # the template has written what a text begins with
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return np.asarray(ids, dtype=np.int64)


def _check_characters(text: str, what: str) -> None:
    """Refuse half of a surrogate pair, which JSON can hold and no tokenizer takes."""
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise InvalidInputError(
            f"{what} holds half of a surrogate pair, U+{ord(half[0]):04X}, at character "
            f"{half.start()}: a text was cut inside a character; leave the half out"
        )
