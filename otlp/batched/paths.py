"""A multi-path round on the device: select one of K paths, then block-verify it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.block import accept_block, verify_block
from otlp.batched.checks import (
    check_devices,
    check_distribution,
    check_drafted,
    check_floats,
    check_tokens,
    reads_values,
)
from otlp.batched.numerics import SECTIONS
from otlp.batched.rows import PADDING, in_chunks, row_sums
from otlp.batched.sampling import uniforms
from otlp.batched.two_slice import (
    BatchedScoreLaw,
    TwoSlice,
    child,
    draw_scores,
    root_law,
    two_slice_step,
)
from otlp.distribution import SUM_TOLERANCE
from otlp.errors import InvalidInputError

AXES = ("row", "path", "level")

MOST_PATHS = 10_000
"""Drafted paths of a round."""


class BatchedRound(NamedTuple):
    """What a round gives each row.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        The accepted prefix, then the correction (or bonus) token, then -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted prefix, 0 to L.
    path : Tensor, shape (B,), int64
        The selected path, 0 to K - 1: where the accepted prefix (and its cache) comes from.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 2, 3, 3), model.expand(1, 2, 2, 3)
    >>> paths = torch.tensor([[[0, 1], [2, 2]]])
    >>> played = batched.verify_paths(target, draft, paths, torch.Generator().manual_seed(0))
    >>> played.tokens.shape, played.accepted.tolist()     # draft and target agree: all is accepted
    (torch.Size([1, 3]), [2])
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor


def verify_paths(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> BatchedRound:
    """Verify K i.i.d. paths of L drafted tokens a row: lossless, two-slice selection.

    Parameters
    ----------
    target : Tensor, shape (B, K, L + 1, V)
        Next-token distributions of the target after each prefix of each path, in float16,
        bfloat16, float32 or float64; those of equal prefixes must be equal.
    draft : Tensor, shape (B, K, L, V)
        Those of the draft model, which the paths were sampled from; see `otlp.batched.sample`.
    draft_tokens : Tensor of int, shape (B, K, L)
        The drafted paths.  There is no padding: the scores of K paths and the blocks of L tokens
        belong together, so rows with fewer or shorter paths are verified in a call of their own;
        single paths of any lengths by `otlp.batched.verify_requests`.
    generator : torch.Generator, Tensor or None
        On the same device; None is PyTorch's own; or uniform numbers, float64 of shape
        (B, K + L + 2), drawn outside: see `otlp.batched.uniforms`.
    validate : bool
        Look at the values of the input, which waits for the device.  Left out under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    BatchedRound
        Accepted tokens and one more, distributed as if the target had been sampled.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        On bad input, naming the argument and the row.  Distributions after equal prefixes may
        differ by rounding, up to the tolerance of their sums; what they differ by, the output
        may be off by.

    Notes
    -----
    B K L nodes of `two_slice_step`, L of them in sequence.  Prefixes that paths share are
    worked out once for each path, to keep shapes fixed.  Rows of the batch are
    worked on in chunks, as by `otlp.batched.martingale`.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 2, 3, 3), model.expand(1, 2, 2, 3)
    >>> paths = torch.tensor([[[0, 1], [2, 2]]])
    >>> played = batched.verify_paths(target, draft, paths, torch.Generator().manual_seed(0))
    >>> played.accepted.tolist(), played.tokens.shape
    ([2], torch.Size([1, 3]))
    """
    check_tokens(draft_tokens, "draft_tokens", "B, K, L")
    numbers = uniforms(draft_tokens, generator, validate=validate)
    _check_form(target, draft, draft_tokens)
    target, draft, tokens = target.detach(), draft.detach(), draft_tokens.long()
    if reads_values(validate, target):
        _check_values(target, draft, tokens)
    # one level of the rows is worked on at a time, beside float64 copies of all
    _, paths, levels, vocab_size = target.shape
    width = paths * levels * max(vocab_size, SECTIONS)
    verify = verify_block if paths == 1 else verify_selected
    return BatchedRound(*in_chunks(verify, width, target, draft, tokens, numbers))


def verify_selected(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Select a path of each row and block-verify it; the fields of `BatchedRound`."""
    batch, paths, length = tokens.shape
    p, q = _normalise(target), _normalise(draft)
    leaves, splits, weights = path_laws(p, q, tokens)
    scores = draw_scores(leaves, numbers[:, :paths].reshape(-1))
    path = scores.view(batch, paths).argmax(1)

    rows = torch.arange(batch, device=tokens.device)
    of_path = rows * paths + path
    chosen = [TwoSlice(*(part[of_path] for part in split)) for split in splits]
    weights = weights.view(batch, paths, length + 1)[rows, path]
    p, left = p[rows, path], residuals(p[rows, path], q[rows, path], chosen, weights)
    return *accept_block(p, left, weights, tokens[rows, path], numbers[:, paths:]), path


def path_laws(
    p: Tensor, q: Tensor, tokens: Tensor
) -> tuple[BatchedScoreLaw, list[TwoSlice], Tensor]:
    """Score laws of drafted paths, built from the root down.

    Parameters
    ----------
    p : Tensor, shape (B, K, L + 1, V), float64
    q : Tensor, shape (B, K, L, V), float64
        Normalised rows.
    tokens : Tensor, shape (B, K, L), int64

    Returns
    -------
    leaves : BatchedScoreLaw
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
        law = child(law, split, target, draft)
        splits.append(split)
        weights.append(law.weight)
    return law, splits, torch.cat(weights, 1)


def residuals(p: Tensor, q: Tensor, splits: list[TwoSlice], weights: Tensor) -> Tensor:
    """What block verification leaves after each prefix of one path, shape (B, L, V).

    Parameters
    ----------
    p : Tensor, shape (B, L + 1, V), float64
    q : Tensor, shape (B, L, V), float64
    splits : list of L TwoSlice
        Of the path's nodes: they define Gamma, which is its draft.
    weights : Tensor, shape (B, L + 1), float64
        w of the path's prefixes.

    Returns
    -------
    Tensor
        (w p - q r)^+, up to the whole path.
    """
    left = []
    for level, split in enumerate(splits):
        drafted = q[:, level] * split.ratio(p[:, level], q[:, level])
        left.append((weights[:, level, None] * p[:, level] - drafted).clamp(min=0.0))
    return torch.stack(left, 1)


def _normalise(rows: Tensor) -> Tensor:
    wide = rows.double()
    return wide / wide.sum(-1, keepdim=True)


def _check_form(target: Tensor, draft: Tensor, draft_tokens: Tensor) -> None:
    check_floats(target, "target", 4)
    check_floats(draft, "draft", 4)
    batch, paths, length = draft_tokens.shape
    if paths > MOST_PATHS:
        raise InvalidInputError(
            f"draft_tokens has {paths:,} paths a row: at most {MOST_PATHS:,} are verified"
        )
    vocab_size = target.shape[-1]
    for name, rows, levels in (("target", target, length + 1), ("draft", draft, length)):
        wanted = (batch, paths, levels, vocab_size)
        if tuple(rows.shape) != wanted:
            raise InvalidInputError(
                f"{name} has shape {tuple(rows.shape)}: with drafts of shape "
                f"{tuple(draft_tokens.shape)} it must be {wanted}"
            )
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens)


def _check_values(target: Tensor, draft: Tensor, tokens: Tensor) -> None:
    for name, rows in (("target", target), ("draft", draft)):
        check_distribution(rows, row_sums(rows), name)
        _check_shared(rows, tokens, name)
    padding = f"a path has no padding ({PADDING}): use verify_requests for one path a row"
    check_drafted(tokens, torch.ones_like(tokens, dtype=torch.bool), draft, AXES, padding)


def _check_shared(rows: Tensor, tokens: Tensor, name: str) -> None:
    own = torch.arange(rows.shape[1], device=rows.device)
    for level in range(rows.shape[2]):
        prefix = tokens[..., :level]
        first = (prefix[:, :, None] == prefix[:, None]).all(3).to(torch.int8).argmax(2)
        row, path = (first != own).nonzero(as_tuple=True)
        pairs = row, first[row, path], path
        reason = f"paths {{}} and {{}} share their first {level} tokens"
        _check_alike(rows[:, :, level], pairs, name, reason)


def _check_alike(
    rows: Tensor, pairs: tuple[Tensor, Tensor, Tensor], name: str, reason: str
) -> None:
    """Raise `InvalidInputError` unless rows after equal prefixes are equal.

    Parameters
    ----------
    rows : Tensor, shape (B, N, V)
    pairs : tuple of Tensor, shape (M,) each
        Numbers of a row, and of two places there.
    name : str
        What holds the rows.
    reason : str
        Why they must be equal, with two ``{}`` for the places.
    """
    tolerance = SUM_TOLERANCE[rows.element_size()]

    def gaps(row: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor]:
        return ((rows[row, one].double() - rows[row, other].double()).abs().amax(1),)

    (gap,) = in_chunks(gaps, rows.shape[2], *pairs)
    if bool((gap > tolerance).any()):
        at = int((gap > tolerance).to(torch.int8).argmax())
        row, one, other = (int(part[at]) for part in pairs)
        raise InvalidInputError(
            f"{name} row {row}: {reason.format(one, other)}, but the distributions after them "
            f"differ by {float(gap[at]):.3g}: they must be equal"
        )
