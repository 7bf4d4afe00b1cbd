"""Models of a loop: a target, an optional draft model, and their sampling parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from otlp.checks import is_a
from otlp.decode.models.model import Sampling
from otlp.device.llama import Llama
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class LoopModels:
    """A target and its draft model, on one device and over one vocabulary.

    Parameters
    ----------
    target : Llama
        Target model.
    draft : Llama, optional
        Draft model.  Without it the target decodes one token per call.
    sampling : Sampling
        Sampling parameters of both models.
    draft_temperature : float, optional
        Temperature of the draft model, by default that of `sampling`.  Decoding is lossless for
        every value.

    Raises
    ------
    InvalidInputError
        If the models differ in vocabulary size or device, or an argument has the wrong type or is
        out of range.

    Examples
    --------
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import Llama, LoopModels
    >>> target, draft = (Llama(load_model(f"trained:{name}", device="cpu").model)
    ...                  for name in ("target", "draft"))
    >>> len(LoopModels(target, draft, draft_temperature=0.8).all)
    2
    """

    target: Llama
    draft: Llama | None = None
    sampling: Sampling = field(default_factory=Sampling)
    draft_temperature: float | None = None

    def __post_init__(self) -> None:
        is_a(self.target, Llama, "the target")
        if self.target.shares:
            raise InvalidInputError("the target must have no shares: only draft models may copy")
        if self.draft is not None:
            is_a(self.draft, Llama, "the draft")
            _check_pair(self.draft, self.target)
        is_a(self.sampling, Sampling, "sampling")
        self.sampling.at(self.draft_temperature)
        if self.draft is None and self.draft_temperature is not None:
            raise InvalidInputError(
                "draft_temperature must be left out if there is no draft model, got "
                f"{self.draft_temperature}"
            )

    @property
    def all(self) -> list[Llama]:
        """The target, followed by the draft model if there is one."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def draft_sampling(self) -> Sampling:
        """Sampling parameters of the draft model."""
        return self.sampling.at(self.draft_temperature)

    @property
    def device(self) -> torch.device:
        """Device of both models."""
        return self.target.device


def _check_pair(draft: Llama, target: Llama) -> None:
    if draft.vocab_size != target.vocab_size:
        raise InvalidInputError(
            "the draft and the target must have the same vocabulary, got "
            f"{draft.vocab_size} tokens and {target.vocab_size}"
        )
    if draft.device != target.device:
        raise InvalidInputError(
            "the draft and the target must be on one device, got "
            f"{draft.device} and {target.device}"
        )
