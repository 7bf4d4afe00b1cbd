"""The models of a loop: a target, a draft for it if there is one, and how both sample."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from otlp.checks import is_a
from otlp.decode.models.model import Sampling
from otlp.device.llama import Llama
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class LoopModels:
    """A target and its draft, on one device and over one vocabulary.

    Parameters
    ----------
    target : Llama
    draft : Llama, optional
        Without a draft the target decodes plainly, a token a call.
    sampling : Sampling
        From logits to next-token distributions, of both models.
    draft_temperature : float, optional
        Of the draft alone: any keeps the target's distribution.  By default that of `sampling`.

    Raises
    ------
    InvalidInputError
        If the models do not go together, or a value is of another type or out of its range.

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
            raise InvalidInputError("the target copies: texts follow a model as it is, drafts may")
        if self.draft is not None:
            is_a(self.draft, Llama, "the draft")
            _check_pair(self.draft, self.target)
        is_a(self.sampling, Sampling, "sampling")
        self.sampling.at(self.draft_temperature)
        if self.draft is None and self.draft_temperature is not None:
            raise InvalidInputError(
                f"draft_temperature is {self.draft_temperature}, and there is no draft: leave it "
                "out"
            )

    @property
    def all(self) -> list[Llama]:
        """The target, then the draft if there is one."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def draft_sampling(self) -> Sampling:
        """The sampling of the draft."""
        return self.sampling.at(self.draft_temperature)

    @property
    def device(self) -> torch.device:
        """Where both models lie."""
        return self.target.device


def _check_pair(draft: Llama, target: Llama) -> None:
    if draft.vocab_size != target.vocab_size:
        raise InvalidInputError(
            f"the draft has {draft.vocab_size} tokens and the target {target.vocab_size}: both "
            "must be over the same vocabulary"
        )
    if draft.device != target.device:
        raise InvalidInputError(
            f"the draft lies on {draft.device} and the target on {target.device}: move both to "
            "one device"
        )
