"""Decoding of one row of a batch of transformers' `generate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from otlp.decode.drafting import Drafting
from otlp.decode.loop import rounds
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tree import TokenTree
from otlp.decode.verification import Verification
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError


class RowPlace(NamedTuple):
    """Row of a batch and its padding, so that processors see the same text as in `generate`.

    Attributes
    ----------
    row : int
        Index of the row.
    rows : int
        Number of rows in the batch.
    padding : tuple of int
        Masked tokens in front of the row's text.
    """

    row: int
    rows: int
    padding: tuple[int, ...]


class RowStep(NamedTuple):
    """A token with the target's logits and scores at its position.

    Attributes
    ----------
    token : int
    logits : torch.Tensor, shape (V,)
        Logits before the processors.
    scores : torch.Tensor, shape (V,)
        Logits after the processors.
    """

    token: int
    logits: Any
    scores: Any


class ProcessedModel(HuggingFaceModel):
    """Model whose logits are processed by generate's logits processors."""

    def __init__(self, model: Any, processors: Any, sampling: Sampling, place: RowPlace) -> None:
        super().__init__(model, sampling=sampling)
        self.processors = processors
        self.place = place
        self.seen: tuple[Any, Any] | None = None

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Process the logits of each node given its text, then normalise."""
        import torch

        logits = torch.from_numpy(self.logits(tree, nodes)).to(self.model.device)
        row, rows, padding = self.place
        scores = []
        for node, found in zip(nodes, logits, strict=True):
            text = self.tensor([[*padding, *self._context, *tree.path(int(node)).tolist()]])
            # Some processors store the prompts of the batch by row.
            batch = self.processors(text.repeat(rows, 1), found.repeat(rows, 1))
            scores.append(batch[row])
        self.seen = logits, torch.stack(scores).float()
        return self.sampling.distributions(self.seen[1].cpu().numpy())


def decode_row(
    draft: Model,
    target: ProcessedModel,
    wanted: Drafting,
    verification: Verification,
    max_length: int,
    rng: np.random.Generator,
) -> Iterator[RowStep]:
    """Yield the tokens of one row, round by round, without end.

    Parameters
    ----------
    draft, target : Model
        Models positioned at the end of the prompt.
    wanted : Drafting
    verification : Verification
    max_length : int
        Maximum length of the row, including padding; the drafting is shortened near this length.
    rng : numpy.random.Generator
    """
    held, padding = target.context.size, len(target.place.padding)
    plan = draft, target, wanted, verification, rng
    for played in rounds(*plan, held=held, most=max_length - padding):
        assert target.seen is not None
        nodes = played.tree.ancestry(played.outcome.node)
        for node, token in zip(nodes, played.tokens.tolist(), strict=True):
            yield RowStep(token, *(part[node] for part in target.seen))


def check_room(target: ProcessedModel, max_length: int) -> None:
    """Check that a text of `max_length` tokens fits into the target's context.

    Raises
    ------
    InvalidInputError
        If the text does not fit; the message contains the largest possible max_new_tokens.
    """
    wanted = max_length - len(target.place.padding)
    limit, held = target.context_limit, target.context.size
    if limit is not None and wanted > limit:
        raise InvalidInputError(
            f"a text of up to {wanted} tokens exceeds the context of {target.name}, {limit}: "
            f"set max_new_tokens to at most {limit - held}"
        )
