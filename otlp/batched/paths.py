"""A multi-path round on the device: select one of K paths, then block-verify it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import draw_index
from otlp.batched.rows import check_devices, check_distribution, recording
from otlp.batched.two_slice import (
    ScoreLaw,
    TwoSlice,
    child,
    draw_scores,
    root_law,
    two_slice_step,
)
from otlp.errors import InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError

__all__ = ["Blocks", "Round", "block_weights", "path_laws", "verify_paths"]


class Round(NamedTuple):
    """What a round gives.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        The accepted prefix, then the correction (or bonus) token, then -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted prefix, 0 to L.
    path : Tensor, shape (B,), int64
        The selected path, 0 to K - 1: where the accepted prefix (and its cache) comes from.
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor


class Blocks(NamedTuple):
    """Block verification of one path a row, before randomness.

    Attributes
    ----------
    stop : Tensor, shape (B, L + 1), float64
        Probability of accepting the prefix of each length, given that no longer one is; 1 for
        the empty prefix.
    residual : Tensor, shape (B, L + 1, V), float64
        Weights of the token that follows each prefix, if it is the longest accepted.
    """

    stop: Tensor
    residual: Tensor


def verify_paths(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> Round:
    """Verify K i.i.d. paths of L drafted tokens a row: lossless, two-slice selection.

    Parameters
    ----------
    target : Tensor, shape (B, K, L + 1, V)
        Next-token distributions of the target after each prefix of each path, in any floating
        precision; those of equal prefixes must be equal.
    draft : Tensor, shape (B, K, L, V)
        Those of the draft model, which the paths were sampled from.
    draft_tokens : Tensor of int, shape (B, K, L)
        The drafted paths.
    generator : torch.Generator, Tensor or None
        On the same device; or uniform numbers, float64 of shape (B, K + L + 2), drawn outside.
    validate : bool
        Look at the values of the input, which waits for the device.  Left out under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    Round
        Accepted tokens and one more, distributed as if the target had been sampled.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        On bad input, naming the row.

    Notes
    -----
    B K L nodes of `two_slice_step`, L of them in sequence.  Prefixes that paths share are
    worked out once for each path, to keep shapes fixed.
    """
    batch, paths, length = _check_form(target, draft, draft_tokens)
    tokens = draft_tokens.long()
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens, generator=generator)
    if validate and not recording(target.device):
        _check_values(target, draft, tokens)
    if isinstance(generator, Tensor):
        numbers = generator
    else:
        shape = (batch, paths + length + 2)
        numbers = torch.rand(shape, dtype=torch.float64, device=tokens.device, generator=generator)
    p, q = _normalise(target), _normalise(draft)
    leaves, splits, weights = path_laws(p, q, tokens)
    scores = draw_scores(leaves, numbers[:, :paths].reshape(-1))
    path = scores.view(batch, paths).argmax(1)

    rows = torch.arange(batch, device=tokens.device)
    of_path = rows * paths + path
    chosen = [TwoSlice(*(part[of_path] for part in split)) for split in splits]
    blocks = block_weights(
        p[rows, path], q[rows, path], chosen, weights.view(batch, paths, -1)[rows, path]
    )
    passed = numbers[:, paths : paths + length + 1] < blocks.stop
    depth = torch.arange(length + 1, device=tokens.device)
    accepted = torch.where(passed, depth, 0).amax(1)
    last, _ = draw_index(blocks.residual[rows, accepted], numbers[:, -1])
    prefix = torch.nn.functional.pad(tokens[rows, path], (0, 1), value=-1)
    output = torch.where(depth < accepted[:, None], prefix, -1)
    output = torch.where(depth == accepted[:, None], last[:, None], output)
    return Round(output, accepted, path)


def path_laws(p: Tensor, q: Tensor, tokens: Tensor) -> tuple[ScoreLaw, list[TwoSlice], Tensor]:
    """Score laws of drafted paths, built from the root down.

    Parameters
    ----------
    p : Tensor, shape (B, K, L + 1, V), float64
    q : Tensor, shape (B, K, L, V), float64
        Normalised rows.
    tokens : Tensor, shape (B, K, L), int64

    Returns
    -------
    leaves : ScoreLaw
        Of B K paths; ``leaves.gain`` is Gamma(path) / Q(path).
    splits : list of TwoSlice
        One for each level, of B K nodes.
    weights : Tensor, shape (B K, L + 1), float64
        Block verification's w of each prefix.
    """
    batch, paths, length = tokens.shape
    law = root_law(batch * paths, p)
    splits, weights = [], [law.weight]
    for level in range(length):
        target, draft = p[:, :, level].flatten(0, 1), q[:, :, level].flatten(0, 1)
        split = two_slice_step(law, target, draft, paths)
        token = tokens[:, :, level].reshape(-1, 1)
        target, draft = target.gather(1, token), draft.gather(1, token)
        law = child(law, split, target, draft, split.share(target, draft))
        splits.append(split)
        weights.append(law.weight)
    return law, splits, torch.cat(weights, 1)


def block_weights(p: Tensor, q: Tensor, splits: list[TwoSlice], weights: Tensor) -> Blocks:
    """Block verification of one path a row, with target P and draft Gamma.

    Parameters
    ----------
    p : Tensor, shape (B, L + 1, V), float64
    q : Tensor, shape (B, L, V), float64
    splits : list of L TwoSlice
        Of the path's nodes: they define Gamma.
    weights : Tensor, shape (B, L + 1), float64
        w of the path's prefixes.

    Returns
    -------
    Blocks

    Notes
    -----
    After a prefix of weight w the residual is (w p - q r)^+, of mass e; the prefix is accepted
    with probability e / (e + 1 - w) if no longer one is (Sun et al. 2024, Block Verification
    Accelerates Speculative Decoding, Algorithm 2).
    """
    left = []
    for level, split in enumerate(splits):
        drafted = q[:, level] * split.ratio(p[:, level], q[:, level])
        left.append((weights[:, level, None] * p[:, level] - drafted).clamp(min=0.0))
    residual = torch.stack([*left, p[:, -1]], 1)
    mass = residual[:, :-1].sum(2)
    # 1 - w first: next to 1 a tiny mass would be lost, and the quotient exceed 1
    stop = mass / (mass + (1.0 - weights[:, :-1])).clamp(min=1e-300)
    stop = torch.cat([torch.ones_like(stop[:, :1]), stop[:, 1:], weights[:, -1:]], 1)
    return Blocks(stop, residual)


def _normalise(rows: Tensor) -> Tensor:
    wide = rows.double()
    return wide / wide.sum(-1, keepdim=True)


def _check_form(target: Tensor, draft: Tensor, draft_tokens: Tensor) -> tuple[int, int, int]:
    if draft_tokens.ndim != 3 or draft_tokens.is_floating_point() or draft_tokens.numel() == 0:
        raise InvalidInputError(
            f"draft_tokens has shape {tuple(draft_tokens.shape)} and type {draft_tokens.dtype}: "
            "it must hold integer token ids of shape (B, K, L)"
        )
    batch, paths, length = draft_tokens.shape
    wanted = {"target": (batch, paths, length + 1), "draft": (batch, paths, length)}
    for name, rows in (("target", target), ("draft", draft)):
        if tuple(rows.shape[:-1]) != wanted[name] or rows.shape[-1] != target.shape[-1]:
            raise InvalidInputError(
                f"{name} has shape {tuple(rows.shape)}: with drafts of shape "
                f"{tuple(draft_tokens.shape)} it must be {(*wanted[name], target.shape[-1])}"
            )
    return batch, paths, length


def _check_values(target: Tensor, draft: Tensor, tokens: Tensor) -> None:
    for name, rows in (("target", target), ("draft", draft)):
        check_distribution(rows, rows.sum(-1, keepdim=True, dtype=torch.float64), name)
    vocab_size = target.shape[-1]
    outside = (tokens < 0) | (tokens >= vocab_size)
    if bool(outside.any()):
        row, path, level = (int(i) for i in outside.nonzero()[0])
        raise TokenOutOfRangeError(
            f"draft_tokens row {row}, path {path}, level {level}: token id "
            f"{int(tokens[row, path, level])} lies outside the vocabulary [0, {vocab_size})"
        )
    never = draft.gather(3, tokens[..., None])[..., 0] == 0
    if bool(never.any()):
        row, path, level = (int(i) for i in never.nonzero()[0])
        raise ZeroProbabilityError(
            f"draft_tokens row {row}, path {path}, level {level}: token "
            f"{int(tokens[row, path, level])} has draft probability 0: pass the distribution "
            "that the path was sampled from"
        )
