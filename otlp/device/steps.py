"""The steps of a round as functions of tensors: fixed shapes, nothing read back, one call each.

What is drafted is a prefix tree of i.i.d. children, k_1, ..., k_L of each token by depth: K paths
of L tokens are K, 1, ..., 1.  The cache of a model has C slots for the text, in order, and behind
them N slots for the drafted tokens, level by level.  A token sees the text and its own path
(`own_slots`); what is accepted moves to the text.  One path is drafted where its tokens belong in
the text, and nothing moves.
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
"""A place beyond every text."""


class Progress(NamedTuple):
    """How far the texts are; all but `ends` changes in place.

    Attributes
    ----------
    text : Tensor, shape (B, C), int64
    held, goal : Tensor, shape (B,), int64
        How much of it is text, and how much is wanted.
    calls : Tensor, shape (B,), int64
        Target calls so far.
    done : Tensor of bool, shape ()
        Whether all have reached their goals.
    ends : Tensor, shape (E,), int64
        Tokens that end a text, possibly none.
    """

    text: Tensor
    held: Tensor
    goal: Tensor
    calls: Tensor
    done: Tensor
    ends: Tensor


def logits_to_probs(logits: Tensor, sampling: Sampling) -> Tensor:
    """Next-token distributions from logits, as `Sampling.distributions`, in float32 at least.

    Parameters
    ----------
    logits : Tensor, shape (..., V)
    sampling : Sampling

    Returns
    -------
    Tensor, shape (..., V)
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
    """Which slots the last token of the text and each drafted token see, beside the text's.

    Parameters
    ----------
    parents : sequence of int
        Of the root, -1, and of N drafted slots.
    context : int
        C.
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
    """The step that drafts the tree, level by level, into tensors that are given.

    At the root the last two tokens go through the model: after a path that was accepted whole its
    last token has not been seen yet.
    """

    def step(
        cache: Cache, text: Tensor, held: Tensor, own: Tensor, numbers: Tensor,
        laws_after: Tensor, drafted: Tensor,
    ) -> None:  # fmt: skip
        batch, context = text.shape
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        places = torch.stack([held - 2, held - 1], 1).clamp(min=0)
        tokens = text.gather(1, places)
        hidden = model.forward(cache, tokens, places, places, at <= places[..., None])
        prefixes, so_far = text.new_empty(batch, 1, 0), 0
        q = probs_behind(model, sampling, hidden[:, -1:], text, held, prefixes)
        rows, levels = [q], []
        for level, children in enumerate(branching):
            width = prefixes.shape[1]
            if level:
                places = (held[:, None] + level - 1).expand(-1, width)
                if is_chain(branching):
                    slots, sees = in_the_text(places, context, at)
                else:
                    slots = so_far - width + torch.arange(width, device=text.device)
                    sees = (at < held[:, None, None]) | own[1 + slots]
                    slots = (context + slots).expand(batch, -1)
                hidden = model.forward(cache, prefixes[..., -1], places, slots, sees)
                q = alike(probs_behind(model, sampling, hidden, text, held, prefixes), prefixes)
                rows.append(q)
            uniform = numbers[:, so_far : so_far + width * children]
            drawn = draw_index(q.flatten(0, 1).double(), uniform.reshape(-1, children))
            drawn = drawn.view(batch, -1, 1)
            prefixes = torch.cat([prefixes.repeat_interleave(children, 1), drawn], 2)
            levels.append(drawn[..., 0])
            so_far += width * children
        laws_after.copy_(torch.cat(rows, 1))
        drafted.copy_(torch.cat(levels, 1))

    return step


def probs_behind(
    model: Llama, sampling: Sampling, hidden: Tensor, text: Tensor, held: Tensor, prefixes: Tensor
) -> Tensor:
    """The draft's distributions after drafted prefixes, with what it copies."""
    logits = model.logits(hidden)
    if model.shares:
        logits = copied_logits(logits, text, held, prefixes, model.shares)
    return logits_to_probs(logits, sampling)


def target_step(model: Llama, sampling: Sampling, branching: Sequence[int]) -> Step:
    """The step that writes the target's distributions after each drafted prefix."""
    widths = list(accumulate(branching, mul))

    def step(
        cache: Cache, text: Tensor, held: Tensor, own: Tensor, drafted: Tensor, laws_after: Tensor
    ) -> None:
        batch, context = text.shape
        last = held[:, None] - 1
        levels = torch.split(drafted, widths, 1)
        behind = ((last + 1 + at).expand_as(one) for at, one in enumerate(levels))
        places = torch.cat([last, *behind], 1)
        at = torch.arange(cache[0][0].shape[2], device=text.device)
        if is_chain(branching):
            slots, sees = in_the_text(places, context, at)
        else:
            drawn_slots = context + torch.arange(drafted.shape[1], device=text.device)
            slots = torch.cat([last, drawn_slots.expand(batch, -1)], 1)
            sees = (at < held[:, None, None]) | own
        tokens = torch.cat([text.gather(1, last), drafted], 1)
        hidden = model.forward(cache, tokens, places, slots, sees)
        root, *rows = torch.split(logits_to_probs(model.logits(hidden), sampling), [1, *widths], 1)
        found, prefixes = [root], drafted.new_empty(batch, 1, 0)
        for row, drawn, children in zip(rows, levels, branching, strict=True):
            prefixes = prefixes.repeat_interleave(children, 1)
            prefixes = torch.cat([prefixes, drawn[..., None]], 2)
            found.append(alike(row, prefixes))
        laws_after.copy_(torch.cat(found, 1))

    return step


def is_chain(branching: Sequence[int]) -> bool:
    """Whether one path is drafted, whose tokens take their places in the text."""
    return all(children == 1 for children in branching)


def in_the_text(places: Tensor, context: int, at: Tensor) -> tuple[Tensor, Tensor]:
    """Slots of tokens at these places, and what they see; texts that are done stay inside."""
    slots = places.clamp(max=context - 1)
    return slots, at <= slots[..., None]


def plain_step(model: Llama, sampling: Sampling) -> Step:
    """The step that decodes one token of each row without a draft, and appends it."""

    def step(cache: Cache, progress: Progress, numbers: Tensor) -> None:
        text, held = progress.text, progress.held
        last = held[:, None] - 1
        slots = torch.arange(cache[0][0].shape[2], device=text.device)
        sees = slots <= last[..., None]
        hidden = model.forward(cache, text.gather(1, last), last, last, sees)
        p = logits_to_probs(model.logits(hidden[:, -1]), sampling)
        append(progress, draw_index(p.double(), numbers), torch.ones_like(held))

    return step


def commit(
    caches: list[Cache], progress: Progress, tokens: Tensor, accepted: Tensor, path: Tensor
) -> None:
    """Move what is accepted behind the texts, in these caches, and append it and a token more."""
    for cache in caches:
        keep_slots(cache, progress.held, (path - 1).clamp(min=0), progress.text.shape[1])
    append(progress, tokens, accepted + 1)


def by_path(rows: Tensor, paths: int) -> Tensor:
    """Rows after the root and each slot of K paths, (B, 1 + K l, V), as (B, K, l + 1, V)."""
    root, nodes = rows[:, None, :1], rows[:, 1:]
    nodes = nodes.view(len(rows), -1, paths, rows.shape[2]).transpose(1, 2)
    return torch.cat([root.expand(-1, paths, -1, -1), nodes], 2)


def alike(rows: Tensor, prefixes: Tensor) -> Tensor:
    """Give paths that begin with the same tokens the same row, that of the first of them.

    Rounding may depend on where in a batch a row is worked out; verification needs equal laws
    after equal prefixes.

    Parameters
    ----------
    rows : Tensor, shape (B, K, V)
    prefixes : Tensor, shape (B, K, n)
        What the rows come after.
    """
    if rows.shape[1] == 1:
        return rows
    same = (prefixes[:, :, None] == prefixes[:, None]).all(-1)
    first = same.int().argmax(2)
    return rows.gather(1, first[..., None].expand_as(rows))


def append(progress: Progress, tokens: Tensor, count: Tensor) -> None:
    """Append tokens to the texts that have not reached their goal; an end token is one.

    Parameters
    ----------
    progress : Progress
        Changed in place.
    tokens : Tensor, shape (B, L + 1), int64
        Padded with -1 behind the first `count` of each row.
    count : Tensor, shape (B,), int64
    """
    text, held, goal, calls, done, ends = progress
    live = held < goal
    place = torch.arange(tokens.shape[1], device=text.device)
    new = place < count[:, None]
    # a row that is done writes behind its text
    where = (held[:, None] + place).clamp(max=text.shape[1] - 1)
    kept = text.gather(1, where)
    text.scatter_(1, where, torch.where(new & live[:, None], tokens, kept))
    ended = new & (tokens[..., None] == ends).any(-1)
    end = torch.where(ended, place, NEVER).amin(1)
    goal.copy_(torch.where(live, torch.minimum(goal, held + end + 1), goal))
    held.add_(torch.where(live, count, 0))
    calls.add_(live)
    done.copy_((held >= goal).all())


def keep_slots(cache: Cache, held: Tensor, slots: Tensor, context: int) -> None:
    """Move drafted slots behind the text; in place.

    Parameters
    ----------
    cache : list of (Tensor, Tensor)
    held : Tensor, shape (B,)
        Tokens of the text before the round's are appended.
    slots : Tensor, shape (B, L)
        By depth, the first drafted slot being 0.
    context : int
        C.
    """
    rows = torch.arange(slots.shape[0], device=slots.device)[:, None]
    place = torch.arange(slots.shape[1], device=slots.device)
    new = (held[:, None] + place).clamp(max=context - 1)
    for layer in cache:
        for part in layer:
            part[rows, :, new] = part[rows, :, context + slots]


def _kept(rows: Tensor, order: Tensor, kept: Tensor) -> Tensor:
    """Keep some tokens by their place in an order, and renormalise."""
    mask = torch.zeros_like(rows, dtype=torch.bool).scatter(-1, order, kept.expand_as(rows))
    found = rows.masked_fill(~mask, 0.0)
    return found / found.sum(-1, keepdim=True)
