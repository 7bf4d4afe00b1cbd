"""Steps of a round with shared noise: grow a draft tree, score it, follow the target's draws.

The tree differs between texts and rounds, but its tensors have fixed shapes; unused nodes have no
parent.  The tree equals `otlp.decode.TopTree` over `otlp.decode.Perturbed`, in the same order.
After the slots for the text, the cache of the draft model has slots for expanded nodes, and the
cache of the target has slots for all nodes.  If the tree is one path, its nodes use slots of the
text.
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
    keep_slots,
    logits_to_probs,
    probs_after,
    read_text,
    read_tree,
    text_slots,
)
from otlp.numerics.exponentials import exponentials, row_keys

NONE = -1.0
"""Score of unused nodes, lower than the score of any node."""


class Grown(NamedTuple):
    """One draft tree per row; the root is node 0, and nodes 1 to N are sorted by depth.

    Attributes
    ----------
    tokens, parents, depths, slots : Tensor, shape (B, N), int64
        Token ids; parent nodes (-1 for unused nodes); depths; and slots of expanded nodes in the
        cache of the draft model, counted from 0 after the text slots.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    slots: Tensor


@dataclass(frozen=True)
class GrownShape:
    """Largest shape of a `TopTree` over V tokens.

    Attributes
    ----------
    drafting : TopTree
    vocab_size : int
    """

    drafting: TopTree
    vocab_size: int

    @property
    def width(self) -> int:
        """Maximum number of expanded nodes per level."""
        return min(self.drafting.width or self.drafting.nodes, self.drafting.nodes)

    @property
    def children(self) -> int:
        """Number of candidate children of an expanded node."""
        return min(self.width, self.vocab_size)

    @property
    def widths(self) -> list[int]:
        """Number of expanded nodes at each level, starting with the root."""
        found = [1]
        while len(found) < self.drafting.length:
            found.append(min(self.width, found[-1] * self.children))
        return found

    @property
    def nodes(self) -> int:
        """Maximum number of nodes."""
        return min(self.drafting.nodes, sum(self.widths) * self.children)

    @property
    def is_chain(self) -> bool:
        """Whether the tree is one path."""
        return self.width == 1


def noise_step(vocab_size: int, count: int) -> Step:
    """Return the step that writes the noise of the next positions, shape (B, `count`, V)."""

    def step(keys: Tensor, seq_lens: Tensor, noise: Tensor) -> None:
        positions = seq_lens[:, None] + torch.arange(count, device=seq_lens.device)
        rows = row_keys(keys, positions)[..., None]
        noise.copy_(exponentials(rows, torch.arange(vocab_size, device=seq_lens.device)))

    return step


def plain_step(model: Llama, sampling: Sampling) -> Step:
    """Return the step that draws and appends one token per row without a draft model."""

    def step(cache: Cache, progress: Progress, noise: Tensor) -> None:
        hidden = read_text(model, cache, progress.text, progress.seq_lens[:, None] - 1)
        drawn = race(model, hidden, sampling, noise)
        append(progress, drawn, torch.ones_like(progress.seq_lens))

    return step


def race(model: Llama, hidden: Tensor, sampling: Sampling, noise: Tensor) -> Tensor:
    """Return the draw after each hidden state by its row of noise; ties go to the lowest id."""
    return (logits_to_probs(model.logits(hidden), sampling).double() / noise).argmax(-1)


def candidates(
    ratios: Tensor, count: int, calibration: Calibration, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the most likely draws and their chances, as `Perturbed`; ties go to the lowest id.

    Parameters
    ----------
    ratios : Tensor, shape (B, W, V), float64
        Probabilities of the draft model divided by the exponential variables.
    count : int
        Number of candidates.
    calibration : Calibration
    temperature : float
        Temperature of the draft model.

    Returns
    -------
    tokens, chances : Tensor, shape (B, W, `count`)
        Token ids and their probabilities, in descending order.
    """
    size = ratios.shape[-1]
    best, tokens = ratios.topk(min(MOST_RANKS, size))
    known = best > 0.0
    weights = (best / best[..., :1]) ** (temperature / calibration.scale)
    weights = weights.masked_fill(~known, 0.0)
    others = size - known.sum(-1, keepdim=True)
    mass = torch.where(others > 0, 1.0 - calibration.unknown, 1.0)
    chances = (mass * weights / weights.sum(-1, keepdim=True)).masked_fill(~known, NONE)
    # All other tokens have equal chances, so only those with the lowest ids are needed.
    low = torch.arange(min(MOST_RANKS + count, size), device=ratios.device)
    named = ((low[:, None] == tokens[..., None, :]) & known[..., None, :]).any(-1)
    others_chance = (calibration.unknown / others.clamp(min=1).double()).expand(named.shape)
    chances = torch.cat([chances, others_chance.masked_fill(named, NONE)], -1)
    tokens = torch.cat([tokens, low.expand(named.shape)], -1)
    chances, order = chances.sort(dim=-1, descending=True, stable=True)
    return tokens.gather(-1, order[..., :count]), chances[..., :count]


def grow_step(
    model: Llama, sampling: Sampling, calibration: Calibration, shape: GrownShape
) -> Step:
    """Return the step that grows the tree from the noise, level by level."""
    widths, count = shape.widths, shape.children
    most, least = shape.drafting.nodes, shape.drafting.least
    offsets = [0]
    for width in widths[1:]:
        offsets.append(offsets[-1] + width)

    def step(cache: Cache, text: Tensor, seq_lens: Tensor, noise: Tensor, grown: Grown) -> None:
        batch, context = text.shape
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        # The cache lacks the token before the last if it is an accepted leaf, so run two tokens.
        last = torch.stack([seq_lens - 2, seq_lens - 1], 1).clamp(min=0)
        hidden = read_text(model, cache, text, last)
        hidden, prefixes = hidden[:, -1:], text.new_empty(batch, 1, 0)
        score, above = noise.new_ones(batch, 1), text.new_zeros(batch, 1)
        seen = torch.zeros(batch, 1, offsets[-1], dtype=torch.bool, device=text.device)
        own = torch.eye(offsets[-1], dtype=torch.bool, device=text.device)
        pool = [(text.new_empty(batch, 0), text.new_empty(batch, 0), noise.new_empty(batch, 0))]
        slots_of = text.new_zeros(batch, 1 + sum(widths) * count)
        first = 1
        for level, width in enumerate(widths):
            if level:
                tokens, _, scores = (torch.cat(one, 1) for one in zip(*pool, strict=True))
                active = scores.masked_fill(_rank(scores) >= most, NONE)[:, first - 1 :]
                score, chosen = (
                    one[:, :width] for one in active.sort(dim=1, descending=True, stable=True)
                )
                parent = (chosen // count)[..., None]
                new = tokens[:, first - 1 :].gather(1, chosen)
                prefixes = prefixes.gather(1, parent.expand(-1, -1, level - 1))
                prefixes = torch.cat([prefixes, new[..., None]], 2)
                above, first = first + chosen, first + active.shape[1]
                positions = (seq_lens[:, None] + level - 1).expand(-1, width)
                if shape.is_chain:
                    slots, mask = text_slots(positions, context, at)
                else:
                    slots = torch.arange(offsets[level - 1], offsets[level], device=text.device)
                    seen = seen.gather(1, parent.expand(-1, -1, offsets[-1])) | own[slots]
                    mask = (at < seq_lens[:, None, None]) | pad(seen, (context, 0))
                    slots = slots.expand(batch, -1)
                    slots_of = slots_of.scatter(1, above, slots)
                    slots = context + slots
                hidden = model.forward(cache, new, positions, slots, mask)
            ratios = probs_after(model, sampling, hidden, text, seq_lens, prefixes).double()
            ratios = ratios / noise[:, level : level + 1]
            tokens, chances = candidates(ratios, count, calibration, sampling.temperature)
            found = score[..., None] * chances
            found = found.masked_fill((score[..., None] < 0.0) | (found < least), NONE)
            above = above[..., None].expand(-1, -1, count)
            pool.append((tokens.flatten(1), above.flatten(1), found.flatten(1)))
        _keep(grown, pool[1:], slots_of, shape.nodes)

    return step


def _rank(score: Tensor) -> Tensor:
    """Return the rank of each node by descending score; ties go to the first node."""
    order = score.sort(dim=1, descending=True, stable=True).indices
    ranks = torch.arange(score.shape[1], device=score.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, ranks)


def _keep(
    grown: Grown, pool: list[tuple[Tensor, Tensor, Tensor]], slots_of: Tensor, nodes: int
) -> None:
    """Write the nodes with the highest scores to `grown`, in their original order."""
    tokens, parents, score = (torch.cat(one, 1) for one in zip(*pool, strict=True))
    depths = torch.cat([torch.full_like(one, at) for at, (one, _, _) in enumerate(pool, 1)], 1)
    kept = score.sort(dim=1, descending=True, stable=True).indices[:, :nodes].sort(1).values
    numbers = torch.arange(1, 1 + nodes, device=kept.device).expand_as(kept)
    renamed = torch.zeros_like(slots_of).scatter(1, 1 + kept, numbers)
    is_node = score.gather(1, kept) >= 0.0
    grown.tokens.copy_(tokens.gather(1, kept))
    grown.depths.copy_(depths.gather(1, kept))
    above = renamed.gather(1, parents.gather(1, kept))
    grown.parents.copy_(above.masked_fill(~is_node, -1))
    grown.slots.copy_(slots_of.gather(1, 1 + kept))


def lineage(parents: Tensor, length: int) -> Tensor:
    """Return the attention mask of the root and the nodes: ancestors and self, (B, 1 + N, N)."""
    numbers = torch.arange(1, 1 + parents.shape[1], device=parents.device)
    own, at = (numbers[:, None] == numbers).expand(len(parents), -1, -1), parents
    for _ in range(length - 1):
        own = own | (at[..., None] == numbers)
        at = torch.where(at > 0, parents.gather(1, (at - 1).clamp(min=0)), -1)
    return pad(own, (0, 0, 1, 0))


def score_step(model: Llama, sampling: Sampling, shape: GrownShape) -> Step:
    """Return the step that writes the draws of the target after the root and each node."""

    def step(
        cache: Cache, text: Tensor, seq_lens: Tensor, noise: Tensor, grown: Grown, drawn: Tensor
    ) -> None:
        depths, own = pad(grown.depths, (1, 0)), None
        if not shape.is_chain:
            own = pad(lineage(grown.parents, shape.drafting.length), (text.shape[1], 0))
        hidden = read_tree(model, cache, text, seq_lens, grown.tokens, depths, own)
        rows = torch.arange(len(text), device=text.device)[:, None]
        drawn.copy_(race(model, hidden, sampling, noise[rows, depths]))

    return step


def walk(grown: Grown, drawn: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Follow the draws of the target from the root as long as they are nodes of the tree.

    Parameters
    ----------
    grown : Grown
    drawn : Tensor, shape (B, 1 + N), int64
        Draws of the target after the root and each node.
    length : int
        Depth L of the tree.

    Returns
    -------
    tokens : Tensor, shape (B, L + 1), int64
        Accepted path, then the draw after it, then padding with -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted path.
    path : Tensor, shape (B, L), int64
        Indices of the accepted nodes, then padding with 1.
    """
    at, active = torch.zeros_like(drawn[:, :1]), torch.ones_like(drawn[:, :1], dtype=torch.bool)
    tokens, path = [], []
    for level in range(length + 1):
        token = drawn.gather(1, at)
        tokens.append(token.masked_fill(~active, -1))
        if level < length:
            here = (grown.parents == at) & (grown.tokens == token) & active
            active = here.any(1, keepdim=True)
            at = torch.where(active, 1 + here.int().argmax(1, keepdim=True), at)
            path.append(torch.where(active, at, 1))
    found = torch.cat(tokens, 1)
    return found, (found >= 0).sum(1) - 1, torch.cat(path, 1)


def commit(
    caches: list[Cache], progress: Progress, grown: Grown, tokens: Tensor, accepted: Tensor,
    path: Tensor,
) -> None:  # fmt: skip
    """Move the cache slots of the accepted path to the text, and append the new tokens."""
    accepted_slots = [path - 1, grown.slots.gather(1, path - 1)]
    for cache, slots in zip(caches, accepted_slots, strict=False):
        keep_slots(cache, progress.seq_lens, slots, progress.text.shape[1])
    append(progress, tokens, accepted + 1)
