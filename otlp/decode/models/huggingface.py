"""Causal language models of Hugging Face behind the `Model` interface.

A model is checked before use (`otlp.decode.models.fitting`); `CachedModel` scores the trees.
transformers and torch are imported only when a model is loaded.
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
    """Checked causal language model of transformers and its tokenizer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Model in evaluation mode, on the device to run on.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        Tokenizer for text prompts and for `check_tokenizers`.
    sampling : Sampling, optional
        Map from logits to next-token distributions.
    name : str, optional
        Name of the model; by default the source that it was loaded from.

    Raises
    ------
    InvalidInputError
        If the model is in training mode.
    UnsupportedProblemError
        If the cache cannot be rolled back, as in recurrent models, or the logits differ from those
        of the plain forward.

    Notes
    -----
    The check takes about eight calls on a dozen tokens, once per transformers model and again after
    a change to the model.  After that a call costs one forward pass over the tokens that are not in
    the cache.  `advance` compacts the accepted entries of the cache and crops the rest, without a
    call.
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
                f"{self.name} is in training mode, where dropout is random: call model.eval()"
            )
        self.slides = has_sliding_windows(self)
        choose_tree_attention(self)
        self.calls = 0
        self.reset()

    def encode(self, text: str, what: str = "the prompt") -> IntArray:
        """Return the token ids of a text, shape (T,); `what` names the text in an error.

        Raises
        ------
        InvalidInputError
            If the model has no tokenizer, or the text has no tokens or half a surrogate pair.
        """
        if self.tokenizer is None:
            raise InvalidInputError(f"{self.name} has no tokenizer: pass token ids instead of text")
        _check_characters(text, what)
        ids = np.asarray(self.tokenizer(text, verbose=False)["input_ids"], dtype=np.int64)
        if not ids.size:
            raise InvalidInputError(f"{what} is empty: pass at least one token")
        return ids

    def encode_chat(self, messages: list[dict[str, str]]) -> IntArray:
        """Return the token ids of a chat up to the answer, shape (T,), from the chat template.

        Parameters
        ----------
        messages : list of dict
            Messages, each with `role` and `content`.

        Raises
        ------
        InvalidInputError
            If the model has no tokenizer or template, or the template rejects the chat.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            raise InvalidInputError(
                f"{self.name} has no chat template: pass the prompt as text in its training format"
            )
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # Templates are programs and may raise any exception.
            raise InvalidInputError(
                f"the chat template of {self.name} rejects the messages: {error!s:.200}"
            ) from error
        _check_characters(text, "the chat")
        # The template has already written the tokens that start a text.
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return np.asarray(ids, dtype=np.int64)


def _check_characters(text: str, what: str) -> None:
    """Raise InvalidInputError for half a surrogate pair: valid in JSON, not for tokenizers."""
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise InvalidInputError(
            f"{what} holds half of a surrogate pair, U+{ord(half[0]):04X}, at character "
            f"{half.start()}: the text was cut inside a character; remove the half"
        )
