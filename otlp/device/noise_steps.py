"""The steps of a round by shared noise: grow a tree, score it, walk along what the target draws.

The tree differs from text to text and from round to round, its tensors have one shape: where it
has fewer nodes than room, the others have no parent.  It is `otlp.decode.TopTree` over
`otlp.decode.Perturbed`, in the same order.  The draft's cache has slots behind the text for what
may be expanded, the target's for what is drafted; on one path both belong in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.decode.drafting import TopTree
from otlp.decode.models.calibration import MOST_RANKS, Calibration
from otlp.decode.models.model import Sampling
from otlp.device.llama import Cache, Llama
from otlp.device.steps import (
    Progress,
    Step,
    append,
    in_the_text,
    keep_slots,
    logits_to_probs,
    probs_behind,
)
from otlp.numerics.exponentials import exponentials, row_keys

NONE = -1.0
"""Worth of what is no node: less than that of any."""


class Grown(NamedTuple):
    """A tree a row; the root has number 0, the nodes 1 to N in the order of their depths.

    Attributes
    ----------
    tokens, parents, depths, slots : Tensor, shape (B, N), int64
        The parent's number, or -1 of what is no node; and where the draft's cache holds the node,
        behind the text, if it was expanded.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    slots: Tensor


@dataclass(frozen=True)
class GrownShape:
    """What a `TopTree` over V tokens can come to.

    Attributes
    ----------
    drafting : TopTree
    vocab_size : int
    """

    drafting: TopTree
    vocab_size: int

    @property
    def width(self) -> int:
        """How many nodes of a level are expanded at most."""
        return min(self.drafting.width or self.drafting.nodes, self.drafting.nodes)

    @property
    def children(self) -> int:
        """Candidates below each of them."""
        return min(self.width, self.vocab_size)

    @property
    def widths(self) -> list[int]:
        """How many nodes are expanded at each level, the root first."""
        found = [1]
        while len(found) < self.drafting.length:
            found.append(min(self.width, found[-1] * self.children))
        return found

    @property
    def nodes(self) -> int:
        """Room for nodes."""
        return min(self.drafting.nodes, sum(self.widths) * self.children)

    @property
    def is_chain(self) -> bool:
        """Whether it is one path."""
        return self.width == 1


def noise_step(vocab_size: int, count: int) -> Step:
    """The step that writes the rows of noise of the next places, shape (B, `count`, V)."""

    def step(keys: Tensor, held: Tensor, noise: Tensor) -> None:
        places = held[:, None] + torch.arange(count, device=held.device)
        rows = row_keys(keys, places)[..., None]
        noise.copy_(exponentials(rows, torch.arange(vocab_size, device=held.device)))

    return step


def plain_step(model: Llama, sampling: Sampling) -> Step:
    """The step that appends what the target draws of each row without a draft."""

    def step(cache: Cache, progress: Progress, noise: Tensor) -> None:
        text, held = progress.text, progress.held
        last = held[:, None] - 1
        slots = torch.arange(cache[0][0].shape[2], device=text.device)
        hidden = model.forward(cache, text.gather(1, last), last, last, slots <= last[..., None])
        append(progress, raced(model, hidden, sampling, noise), torch.ones_like(held))

    return step


def raced(model: Llama, hidden: Tensor, sampling: Sampling, noise: Tensor) -> Tensor:
    """What is drawn after each hidden state, by its row of noise; ties to the lowest id."""
    return (logits_to_probs(model.logits(hidden), sampling).double() / noise).argmax(-1)


def candidates(
    ratios: Tensor, count: int, calibration: Calibration, temperature: float
) -> tuple[Tensor, Tensor]:
    """The likeliest draws and their chances, as `Perturbed` gives them; ties to the lowest id.

    Parameters
    ----------
    ratios : Tensor, shape (B, W, V), float64
        The draft's probabilities over the exponential variables.
    count : int
    calibration : Calibration
    temperature : float
        Of the draft.

    Returns
    -------
    tokens, chances : Tensor, shape (B, W, `count`)
    """
    size = ratios.shape[-1]
    best, tokens = ratios.topk(min(MOST_RANKS, size))
    known = best > 0.0
    weights = (best / best[..., :1]) ** (temperature / calibration.scale)
    weights = weights.masked_fill(~known, 0.0)
    others = size - known.sum(-1, keepdim=True)
    mass = torch.where(others > 0, 1.0 - calibration.unknown, 1.0)
    chances = (mass * weights / weights.sum(-1, keepdim=True)).masked_fill(~known, NONE)
    # all others are alike, and those with the lowest ids come first
    low = torch.arange(min(MOST_RANKS + count, size), device=ratios.device)
    named = ((low[:, None] == tokens[..., None, :]) & known[..., None, :]).any(-1)
    alike = (calibration.unknown / others.clamp(min=1).double()).expand(named.shape)
    chances = torch.cat([chances, alike.masked_fill(named, NONE)], -1)
    tokens = torch.cat([tokens, low.expand(named.shape)], -1)
    chances, order = chances.sort(dim=-1, descending=True, stable=True)
    return tokens.gather(-1, order[..., :count]), chances[..., :count]


def grow_step(
    model: Llama, sampling: Sampling, calibration: Calibration, shape: GrownShape
) -> Step:
    """The step that grows the tree by the noise, level by level."""
    widths, count = shape.widths, shape.children
    most, least = shape.drafting.nodes, shape.drafting.least
    begins = [0]
    for width in widths[1:]:
        begins.append(begins[-1] + width)

    def step(cache: Cache, text: Tensor, held: Tensor, noise: Tensor, grown: Grown) -> None:
        batch, context = text.shape
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        places = torch.stack([held - 2, held - 1], 1).clamp(min=0)
        # after a leaf that was accepted its token has not been seen yet
        hidden = model.forward(
            cache, text.gather(1, places), places, places, at <= places[..., None]
        )
        hidden, prefixes = hidden[:, -1:], text.new_empty(batch, 1, 0)
        worth, above = noise.new_ones(batch, 1), text.new_zeros(batch, 1)
        seen = torch.zeros(batch, 1, begins[-1], dtype=torch.bool, device=text.device)
        own = torch.eye(begins[-1], dtype=torch.bool, device=text.device)
        pool = [(text.new_empty(batch, 0), text.new_empty(batch, 0), noise.new_empty(batch, 0))]
        slots_of = text.new_zeros(batch, 1 + sum(widths) * count)
        first = 1
        for level, width in enumerate(widths):
            if level:
                tokens, _, worths = (torch.cat(one, 1) for one in zip(*pool, strict=True))
                going = worths.masked_fill(_rank(worths) >= most, NONE)[:, first - 1 :]
                worth, chosen = (
                    one[:, :width] for one in going.sort(dim=1, descending=True, stable=True)
                )
                behind = (chosen // count)[..., None]
                new = tokens[:, first - 1 :].gather(1, chosen)
                prefixes = prefixes.gather(1, behind.expand(-1, -1, level - 1))
                prefixes = torch.cat([prefixes, new[..., None]], 2)
                above, first = first + chosen, first + going.shape[1]
                places = (held[:, None] + level - 1).expand(-1, width)
                if shape.is_chain:
                    slots, sees = in_the_text(places, context, at)
                else:
                    slots = torch.arange(begins[level - 1], begins[level], device=text.device)
                    seen = seen.gather(1, behind.expand(-1, -1, begins[-1])) | own[slots]
                    sees = (at < held[:, None, None]) | pad(seen, (context, 0))
                    slots = slots.expand(batch, -1)
                    slots_of = slots_of.scatter(1, above, slots)
                    slots = context + slots
                hidden = model.forward(cache, new, places, slots, sees)
            ratios = probs_behind(model, sampling, hidden, text, held, prefixes).double()
            ratios = ratios / noise[:, level : level + 1]
            tokens, chances = candidates(ratios, count, calibration, sampling.temperature)
            found = worth[..., None] * chances
            found = found.masked_fill((worth[..., None] < 0.0) | (found < least), NONE)
            above = above[..., None].expand(-1, -1, count)
            pool.append((tokens.flatten(1), above.flatten(1), found.flatten(1)))
        _keep(grown, pool[1:], slots_of, shape.nodes)

    return step


def _rank(worth: Tensor) -> Tensor:
    """Rank of each node, the best first; ties to the first."""
    order = worth.sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(worth.shape[1], device=worth.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, places)


def _keep(
    grown: Grown, pool: list[tuple[Tensor, Tensor, Tensor]], slots_of: Tensor, nodes: int
) -> None:
    """Write the best nodes of all levels, in their own order."""
    tokens, parents, worth = (torch.cat(one, 1) for one in zip(*pool, strict=True))
    depths = torch.cat([torch.full_like(one, at) for at, (one, _, _) in enumerate(pool, 1)], 1)
    kept = worth.sort(dim=1, descending=True, stable=True).indices[:, :nodes].sort(1).values
    numbers = torch.arange(1, 1 + nodes, device=kept.device).expand_as(kept)
    renamed = torch.zeros_like(slots_of).scatter(1, 1 + kept, numbers)
    is_node = worth.gather(1, kept) >= 0.0
    grown.tokens.copy_(tokens.gather(1, kept))
    grown.depths.copy_(depths.gather(1, kept))
    above = renamed.gather(1, parents.gather(1, kept))
    grown.parents.copy_(above.masked_fill(~is_node, -1))
    grown.slots.copy_(slots_of.gather(1, 1 + kept))


def lineage(parents: Tensor, length: int) -> Tensor:
    """Which nodes the root and each node see: itself and those above, shape (B, 1 + N, N)."""
    numbers = torch.arange(1, 1 + parents.shape[1], device=parents.device)
    own, at = (numbers[:, None] == numbers).expand(len(parents), -1, -1), parents
    for _ in range(length - 1):
        own = own | (at[..., None] == numbers)
        at = torch.where(at > 0, parents.gather(1, (at - 1).clamp(min=0)), -1)
    return pad(own, (0, 0, 1, 0))


def score_step(model: Llama, sampling: Sampling, shape: GrownShape) -> Step:
    """The step that writes what the target draws after the root and each node."""

    def step(
        cache: Cache, text: Tensor, held: Tensor, noise: Tensor, grown: Grown, drawn: Tensor
    ) -> None:
        batch, context = text.shape
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        last = held[:, None] - 1
        depths = pad(grown.depths, (1, 0))
        places = last + depths
        if shape.is_chain:
            slots, sees = in_the_text(places, context, at)
        else:
            behind = context + torch.arange(shape.nodes, device=text.device)
            slots = torch.cat([last, behind.expand(batch, -1)], 1)
            own = pad(lineage(grown.parents, shape.drafting.length), (context, 0))
            sees = (at < held[:, None, None]) | own
        tokens = torch.cat([text.gather(1, last), grown.tokens], 1)
        hidden = model.forward(cache, tokens, places, slots, sees)
        rows = torch.arange(batch, device=text.device)[:, None]
        drawn.copy_(raced(model, hidden, sampling, noise[rows, depths]))

    return step


def walk(grown: Grown, drawn: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Go down along what the target draws.

    Parameters
    ----------
    grown : Grown
    drawn : Tensor, shape (B, 1 + N), int64
    length : int

    Returns
    -------
    tokens : Tensor, shape (B, L + 1), int64
        The accepted path, then what is drawn after it, then -1.
    accepted : Tensor, shape (B,), int64
    path : Tensor, shape (B, L), int64
        Numbers of the accepted nodes, then 1.
    """
    at, going = torch.zeros_like(drawn[:, :1]), torch.ones_like(drawn[:, :1], dtype=torch.bool)
    tokens, path = [], []
    for level in range(length + 1):
        token = drawn.gather(1, at)
        tokens.append(token.masked_fill(~going, -1))
        if level < length:
            here = (grown.parents == at) & (grown.tokens == token) & going
            going = here.any(1, keepdim=True)
            at = torch.where(going, 1 + here.int().argmax(1, keepdim=True), at)
            path.append(torch.where(going, at, 1))
    found = torch.cat(tokens, 1)
    return found, (found >= 0).sum(1) - 1, torch.cat(path, 1)


def commit(
    caches: list[Cache], progress: Progress, grown: Grown, tokens: Tensor, accepted: Tensor,
    path: Tensor,
) -> None:  # fmt: skip
    """Move what is accepted behind the texts, in these caches, and append it and a token more."""
    places = [path - 1, grown.slots.gather(1, path - 1)]
    for cache, slots in zip(caches, places, strict=False):
        keep_slots(cache, progress.held, slots, progress.text.shape[1])
    append(progress, tokens, accepted + 1)
