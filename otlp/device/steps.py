"""The steps of a round as functions of tensors: fixed shapes, nothing read back, one call each.

The cache of a model has C slots for the text, in order, and behind them K L slots for the drafted
paths, path by path.  A token sees the text and its own path (`own_paths`); what is accepted moves
to the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import draw_index
from otlp.batched.sampling import softmax
from otlp.decode.models.model import Sampling
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


def laws(logits: Tensor, sampling: Sampling) -> Tensor:
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
    return rows


def own_paths(paths: int, length: int, context: int, device: torch.device) -> Tensor:
    """Which slots the last token of the text and each drafted token see, beside the text's.

    Returns
    -------
    Tensor of bool, shape (1 + K L, C + K L)
    """
    level = torch.arange(length, device=device).repeat(paths)
    path = torch.arange(paths, device=device).repeat_interleave(length)
    own = (path[:, None] == path) & (level[:, None] >= level)
    return torch.nn.functional.pad(own, (context, 0, 1, 0))


def draft_step(model: Llama, sampling: Sampling) -> Step:
    """The step that drafts the paths, level by level.

    At the root the last two tokens go through the model: after a path that was accepted whole its
    last token has not been seen yet.
    """

    def step(
        cache: Cache, text: Tensor, held: Tensor, own: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, length, count = numbers.shape
        context, device = text.shape[1], text.device
        at = torch.arange(cache[0][0].shape[2], device=device)
        places = torch.stack([held - 2, held - 1], 1).clamp(min=0)
        tokens = text.gather(1, places)
        hidden = model.read(cache, tokens, places, places, at <= places[..., None])
        q = laws(model.logits(hidden[:, -1]), sampling)
        drawn = draw_index(q.double(), numbers[:, 0])[0]
        rows, levels = [q[:, None].expand(-1, count, -1)], [drawn]
        first = length * torch.arange(count, device=device)
        for level in range(1, length):
            places = (held[:, None] + level - 1).expand(-1, count)
            slots = (context + first + level - 1).expand(batch, -1)
            sees = (at < held[:, None, None]) | own[first + level]
            hidden = model.read(cache, levels[-1], places, slots, sees)
            q = laws(model.logits(hidden), sampling)
            q = alike(q, torch.stack(levels, 2))
            drawn = draw_index(q.flatten(0, 1).double(), numbers[:, level].reshape(-1, 1))[0]
            rows.append(q)
            levels.append(drawn.view(-1, count))
        return torch.stack(rows, 2), torch.stack(levels, 2)

    return step


def target_step(model: Llama, sampling: Sampling) -> Step:
    """The step that gives the target's distributions after each prefix of each path."""

    def step(cache: Cache, text: Tensor, held: Tensor, own: Tensor, paths: Tensor) -> Tensor:
        batch, count, length = paths.shape
        context, device = text.shape[1], text.device
        last = held[:, None] - 1
        tokens = torch.cat([text.gather(1, last), paths.flatten(1)], 1)
        behind = torch.arange(length, device=device).repeat(count)
        places = torch.cat([last, held[:, None] + behind], 1)
        drafted = context + torch.arange(count * length, device=device)
        slots = torch.cat([last, drafted.expand(batch, -1)], 1)
        at = torch.arange(cache[0][0].shape[2], device=device)
        sees = (at < held[:, None, None]) | own
        hidden = model.read(cache, tokens, places, slots, sees)
        p = laws(model.logits(hidden), sampling)
        root, nodes = p[:, :1], p[:, 1:].reshape(batch, count, length, -1)
        levels = [root.expand(-1, count, -1)]
        for level in range(1, length + 1):
            levels.append(alike(nodes[:, :, level - 1], paths[:, :, :level]))
        return torch.stack(levels, 2)

    return step


def plain_step(model: Llama, sampling: Sampling) -> Step:
    """The step that decodes one token of each row without a draft, and appends it."""

    def step(cache: Cache, progress: Progress, numbers: Tensor) -> None:
        text, held = progress.text, progress.held
        last = held[:, None] - 1
        slots = torch.arange(cache[0][0].shape[2], device=text.device)
        sees = slots <= last[..., None]
        hidden = model.read(cache, text.gather(1, last), last, last, sees)
        p = laws(model.logits(hidden[:, -1]), sampling)
        append(progress, draw_index(p.double(), numbers)[0], torch.ones_like(held))

    return step


def settle(
    caches: list[Cache], progress: Progress, tokens: Tensor, accepted: Tensor, path: Tensor
) -> None:
    """Move the selected paths behind the texts, and append what was accepted and a token more."""
    for cache in caches:
        keep_path(cache, progress.held, path, progress.text.shape[1], tokens.shape[1] - 1)
    append(progress, tokens, accepted + 1)


def alike(rows: Tensor, prefixes: Tensor) -> Tensor:
    """Give paths that begin with the same tokens the same row, that of the first of them.

    Rounding may depend on where in a batch a row is worked out; verification wants equal laws
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


def keep_path(cache: Cache, held: Tensor, path: Tensor, context: int, length: int) -> None:
    """Move the slots of the selected path behind the text; in place.

    Parameters
    ----------
    cache : list of (Tensor, Tensor)
    held : Tensor, shape (B,)
        Tokens of the text before the round's are appended.
    path : Tensor, shape (B,)
    context, length : int
        C and L.
    """
    rows = torch.arange(path.shape[0], device=path.device)[:, None]
    place = torch.arange(length, device=path.device)
    old = context + length * path[:, None] + place
    new = (held[:, None] + place).clamp(max=context - 1)
    for layer in cache:
        for part in layer:
            part[rows, :, new] = part[rows, :, old]


def _kept(rows: Tensor, order: Tensor, kept: Tensor) -> Tensor:
    """Keep some tokens by their place in an order, and renormalise."""
    mask = torch.zeros_like(rows, dtype=torch.bool).scatter(-1, order, kept.expand_as(rows))
    found = rows.masked_fill(~mask, 0.0)
    return found / found.sum(-1, keepdim=True)
