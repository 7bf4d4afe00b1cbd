"""One sequence of a batch that `generate` of transformers decodes: a stream of verified tokens."""

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
    """Where a row stands in its batch: processors see the text as `generate` would show it.

    Attributes
    ----------
    row : int
        Its number.
    rows : int
        How many there are.
    padding : tuple of int
        Tokens that the attention mask masks, in front of its text.
    """

    row: int
    rows: int
    padding: tuple[int, ...]


class RowStep(NamedTuple):
    """A token, and what the target said of its place, shape (V,) each.

    Attributes
    ----------
    token : int
    logits : torch.Tensor
        Before the processors.
    scores : torch.Tensor
        After them.
    """

    token: int
    logits: Any
    scores: Any


class ProcessedModel(HuggingFaceModel):
    """A model whose distributions come through generate's logits processors."""

    def __init__(self, model: Any, processors: Any, sampling: Sampling, place: RowPlace) -> None:
        super().__init__(model, sampling=sampling)
        self.processors = processors
        self.place = place
        self.seen: tuple[Any, Any] | None = None

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Process the logits of each node with the text before it, then normalise."""
        import torch

        logits = torch.from_numpy(self.logits(tree, nodes)).to(self.model.device)
        row, rows, padding = self.place
        scores = []
        for node, found in zip(nodes, logits, strict=True):
            text = self.tensor([[*padding, *self._context, *tree.path(int(node)).tolist()]])
            # some processors know the prompts of the batch, row by row
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
    """Yield the tokens of one row, a round at a time, without an end.

    Parameters
    ----------
    draft, target : Model
        Both at the end of the prompt.
    wanted : Drafting
    verification : Verification
    max_length : int
        What the row is to grow to, its padding included: near it, the drafting is shortened.
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
    """Refuse, before a token is decoded, a text that the target cannot hold.

    Raises
    ------
    InvalidInputError
        Saying how many new tokens it can.
    """
    wanted = max_length - len(target.place.padding)
    limit, held = target.context_limit, target.context.size
    if limit is not None and wanted > limit:
        raise InvalidInputError(
            f"the text would grow to {wanted} tokens and the context of {target.name} is {limit}: "
            f"give max_new_tokens of at most {limit - held}"
        )
