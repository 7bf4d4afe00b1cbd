"""Steps of a round as functions of tensors with fixed shapes that read no value back.

The draft is a prefix tree with k_1, ..., k_L i.i.d. children of each token by depth; K, 1, ..., 1
are K paths of L tokens.  The cache of a model has C slots for the text, in order, followed by N
slots for the drafted tokens, level by level.  A token attends to the text and to its own path
(`own_slots`).  The cache entries of accepted tokens are moved to the text.  If the draft is one
path, its tokens are written to the slots of the text, and no entry is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import draw_index
from otlp.batched.sampling import softmax
from otlp.decode.models.model import Sampling
from otlp.device.copying import copied_logits
from otlp.device.llama import Cache, Llama

Step = Callable[..., Any]

NEVER = 2**40
"""A position after the end of every text."""


class Progress(NamedTuple):
    """Progress of the texts; all fields except `ends` are changed in place.

    Attributes
    ----------
    text : Tensor, shape (B, C), int64
        Token ids.
    seq_lens, goal : Tensor, shape (B,), int64
        Current and final number of tokens of each text.
    calls : Tensor, shape (B,), int64
        Number of target calls so far.
    done : Tensor of bool, shape ()
        Whether all texts have reached their goals.
    ends : Tensor, shape (E,), int64
        Ids of end-of-sequence tokens, possibly empty.
    """

    text: Tensor
    seq_lens: Tensor
    goal: Tensor
    calls: Tensor
    done: Tensor
    ends: Tensor


def logits_to_probs(logits: Tensor, sampling: Sampling) -> Tensor:
    """Compute next-token distributions from logits, as `Sampling.distributions`.

    Parameters
    ----------
    logits : Tensor, shape (..., V)
    sampling : Sampling

    Returns
    -------
    Tensor, shape (..., V)
        Distributions in float32 or float64.
    """
    if sampling.temperature == 0.0:
        best = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits, dtype=torch.float32).scatter(-1, best, 1.0)
    rows = softmax(logits, sampling.temperature)
    vocab_size = rows.shape[-1]
    if sampling.top_k is not None and sampling.top_k < vocab_size:
        order = rows.sort(dim=-1, descending=True, stable=True).indices
        rows = _kept(rows, order, torch.arange(vocab_size, device=rows.device) < sampling.top_k)
    if sampling.top_p < 1.0:
        order = rows.sort(dim=-1, descending=True, stable=True).indices
        sorted_rows = rows.gather(-1, order).double()
        rows = _kept(rows, order, sorted_rows.cumsum(-1) - sorted_rows < sampling.top_p)
    if sampling.min_p > 0.0:
        likely = rows.double() >= sampling.min_p * rows.amax(-1, keepdim=True).double()
        rows = torch.where(likely, rows, 0.0)
        rows = rows / rows.sum(-1, keepdim=True)
    return rows


def own_slots(parents: Sequence[int], context: int, device: torch.device) -> Tensor:
    """Return the attention mask of drafted slots for the last text token and each drafted token.

    Parameters
    ----------
    parents : sequence of int
        Parents of the root (-1) and of the N drafted slots.
    context : int
        Number of text slots C, which are False in the mask.
    device : torch.device

    Returns
    -------
    Tensor of bool, shape (1 + N, C + N)
    """
    own = torch.eye(len(parents), dtype=torch.bool)
    for slot, parent in enumerate(parents[1:], start=1):
        own[slot] |= own[parent]
    own[:, 0] = False
    return torch.nn.functional.pad(own[:, 1:], (context, 0)).to(device)


def draft_step(model: Llama, sampling: Sampling, branching: Sequence[int]) -> Step:
    """Return the step that drafts the tree, level by level, into the tensors passed.

    At the root the model runs on the last two tokens, because its cache lacks the last drafted
    token if the whole path was accepted.
    """

    def step(
        cache: Cache, text: Tensor, seq_lens: Tensor, own: Tensor, numbers: Tensor,
        probs: Tensor, drafted: Tensor,
    ) -> None:  # fmt: skip
        batch, context = text.shape
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        last = torch.stack([seq_lens - 2, seq_lens - 1], 1).clamp(min=0)
        hidden = read_text(model, cache, text, last)
        prefixes, offset = text.new_empty(batch, 1, 0), 0
        q = probs_after(model, sampling, hidden[:, -1:], text, seq_lens, prefixes)
        rows, levels = [q], []
        for level, children in enumerate(branching):
            width = prefixes.shape[1]
            if level:
                positions = (seq_lens[:, None] + level - 1).expand(-1, width)
                if is_chain(branching):
                    slots, mask = text_slots(positions, context, at)
                else:
                    slots = offset - width + torch.arange(width, device=text.device)
                    mask = (at < seq_lens[:, None, None]) | own[1 + slots]
                    slots = (context + slots).expand(batch, -1)
                hidden = model.forward(cache, prefixes[..., -1], positions, slots, mask)
                q = unify(probs_after(model, sampling, hidden, text, seq_lens, prefixes), prefixes)
                rows.append(q)
            uniform = numbers[:, offset : offset + width * children]
            drawn = draw_index(q.flatten(0, 1).double(), uniform.reshape(-1, children))
            drawn = drawn.view(batch, -1, 1)
            prefixes = torch.cat([prefixes.repeat_interleave(children, 1), drawn], 2)
            levels.append(drawn[..., 0])
            offset += width * children
        probs.copy_(torch.cat(rows, 1))
        drafted.copy_(torch.cat(levels, 1))

    return step


def probs_after(
    model: Llama, sampling: Sampling, hidden: Tensor, text: Tensor, seq_lens: Tensor,
    prefixes: Tensor,
) -> Tensor:  # fmt: skip
    """Return the distributions of the draft model after drafted prefixes, including copying."""
    logits = model.logits(hidden)
    if model.shares:
        logits = copied_logits(logits, text, seq_lens, prefixes, model.shares)
    return logits_to_probs(logits, sampling)


def target_step(model: Llama, sampling: Sampling, branching: Sequence[int]) -> Step:
    """Return the step that writes the distributions of the target after each drafted prefix."""
    widths = list(accumulate(branching, mul))

    def step(
        cache: Cache, text: Tensor, seq_lens: Tensor, own: Tensor, drafted: Tensor, probs: Tensor
    ) -> None:
        levels = torch.split(drafted, widths, 1)
        below = [torch.full_like(one, depth) for depth, one in enumerate(levels, start=1)]
        depths = torch.cat([torch.zeros_like(drafted[:, :1]), *below], 1)
        seen = None if is_chain(branching) else own
        hidden = read_tree(model, cache, text, seq_lens, drafted, depths, seen)
        root, *rows = torch.split(logits_to_probs(model.logits(hidden), sampling), [1, *widths], 1)
        found, prefixes = [root], drafted.new_empty(len(drafted), 1, 0)
        for row, drawn, children in zip(rows, levels, branching, strict=True):
            prefixes = prefixes.repeat_interleave(children, 1)
            prefixes = torch.cat([prefixes, drawn[..., None]], 2)
            found.append(unify(row, prefixes))
        probs.copy_(torch.cat(found, 1))

    return step


def is_chain(branching: Sequence[int]) -> bool:
    """Return whether the tree is one path, whose tokens are written to the slots of the text."""
    return all(children == 1 for children in branching)


def text_slots(positions: Tensor, context: int, at: Tensor) -> tuple[Tensor, Tensor]:
    """Return the text slots of tokens and their masks, clamped for finished texts."""
    slots = positions.clamp(max=context - 1)
    return slots, at <= slots[..., None]


def read_text(model: Llama, cache: Cache, text: Tensor, positions: Tensor) -> Tensor:
    """Run a model on tokens of the text (B, m), which attend to the text up to themselves."""
    mask = torch.arange(cache[0][0].shape[2], device=text.device) <= positions[..., None]
    return model.forward(cache, text.gather(1, positions), positions, positions, mask)


def read_tree(
    model: Llama, cache: Cache, text: Tensor, seq_lens: Tensor, drafted: Tensor, depths: Tensor,
    own: Tensor | None,
) -> Tensor:  # fmt: skip
    """Run the target on the last token of the text and the drafted tokens (B, N).

    Parameters
    ----------
    depths : Tensor, shape (B, 1 + N)
        Depths of these tokens in the tree.
    own : Tensor of bool, shape (..., 1 + N, C + N), or None
        Drafted slots that each token attends to; None for a chain.
    """
    (batch, context), last = text.shape, seq_lens[:, None] - 1
    at = torch.arange(cache[0][0].shape[2], device=text.device)
    positions = last + depths
    if own is None:
        slots, mask = text_slots(positions, context, at)
    else:
        drafted_slots = context + torch.arange(drafted.shape[1], device=text.device)
        slots = torch.cat([last, drafted_slots.expand(batch, -1)], 1)
        mask = (at < seq_lens[:, None, None]) | own
    tokens = torch.cat([text.gather(1, last), drafted], 1)
    return model.forward(cache, tokens, positions, slots, mask)


def plain_step(model: Llama, sampling: Sampling) -> Step:
    """Return the step that decodes and appends one token per row without a draft model."""

    def step(cache: Cache, progress: Progress, numbers: Tensor) -> None:
        hidden = read_text(model, cache, progress.text, progress.seq_lens[:, None] - 1)
        p = logits_to_probs(model.logits(hidden[:, -1]), sampling)
        append(progress, draw_index(p.double(), numbers), torch.ones_like(progress.seq_lens))

    return step


def commit(
    caches: list[Cache], progress: Progress, tokens: Tensor, accepted: Tensor, path: Tensor
) -> None:
    """Move the cache slots of the accepted path to the text, and append the new tokens."""
    for cache in caches:
        keep_slots(cache, progress.seq_lens, (path - 1).clamp(min=0), progress.text.shape[1])
    append(progress, tokens, accepted + 1)


def by_path(rows: Tensor, paths: int) -> Tensor:
    """Reshape rows (B, 1 + K l, V) after the root and the slots of K paths to (B, K, l + 1, V)."""
    root, nodes = rows[:, None, :1], rows[:, 1:]
    nodes = nodes.view(len(rows), -1, paths, rows.shape[2]).transpose(1, 2)
    return torch.cat([root.expand(-1, paths, -1, -1), nodes], 2)


def unify(rows: Tensor, prefixes: Tensor) -> Tensor:
    """Replace rows after equal prefixes by the first such row.

    Rounding may depend on the position of a row in a batch, but verification requires equal
    distributions after equal prefixes.

    Parameters
    ----------
    rows : Tensor, shape (B, K, V)
        Distributions after the prefixes.
    prefixes : Tensor, shape (B, K, n)
    """
    if rows.shape[1] == 1:
        return rows
    same = (prefixes[:, :, None] == prefixes[:, None]).all(-1)
    first = same.int().argmax(2)
    return rows.gather(1, first[..., None].expand_as(rows))


def append(progress: Progress, tokens: Tensor, count: Tensor) -> None:
    """Append tokens to the texts that have not reached their goal; an end token sets the goal.

    Parameters
    ----------
    progress : Progress
        Changed in place.
    tokens : Tensor, shape (B, L + 1), int64
        New tokens, padded with -1 after the first `count` tokens of each row.
    count : Tensor, shape (B,), int64
        Number of new tokens.
    """
    text, seq_lens, goal, calls, done, ends = progress
    live = seq_lens < goal
    place = torch.arange(tokens.shape[1], device=text.device)
    new = place < count[:, None]
    # Rows of finished texts write after the end of their text.
    where = (seq_lens[:, None] + place).clamp(max=text.shape[1] - 1)
    kept = text.gather(1, where)
    text.scatter_(1, where, torch.where(new & live[:, None], tokens, kept))
    ended = new & (tokens[..., None] == ends).any(-1)
    end = torch.where(ended, place, NEVER).amin(1)
    goal.copy_(torch.where(live, torch.minimum(goal, seq_lens + end + 1), goal))
    seq_lens.add_(torch.where(live, count, 0))
    calls.add_(live)
    done.copy_((seq_lens >= goal).all())


def keep_slots(cache: Cache, seq_lens: Tensor, slots: Tensor, context: int) -> None:
    """Copy drafted slots of a cache to the end of the text, in place.

    Parameters
    ----------
    cache : list of (Tensor, Tensor)
    seq_lens : Tensor, shape (B,)
        Number of tokens of each text before the round.
    slots : Tensor, shape (B, L)
        Drafted slots by depth, counted from 0 after the text slots.
    context : int
        Number of text slots C.
    """
    rows = torch.arange(slots.shape[0], device=slots.device)[:, None]
    place = torch.arange(slots.shape[1], device=slots.device)
    new = (seq_lens[:, None] + place).clamp(max=context - 1)
    for layer in cache:
        for part in layer:
            part[rows, :, new] = part[rows, :, context + slots]


def _kept(rows: Tensor, order: Tensor, kept: Tensor) -> Tensor:
    """Keep the tokens whose rank is marked in `kept`, and renormalise."""
    mask = torch.zeros_like(rows, dtype=torch.bool).scatter(-1, order, kept.expand_as(rows))
    found = rows.masked_fill(~mask, 0.0)
    return found / found.sum(-1, keepdim=True)
