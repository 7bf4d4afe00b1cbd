"""Multi-path verification on the device: select one of K paths, then block-verify it."""

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
"""Maximum number of drafted paths per row."""


class BatchedRound(NamedTuple):
    """Result of a verification round, for each row.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        Accepted prefix, then the correction (or bonus) token, then padding with -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted prefix, 0 to L.
    path : Tensor, shape (B,), int64
        Index of the selected path, 0 to K - 1, which the accepted prefix (and its cache) is from.

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
    """Verify K i.i.d. paths of L drafted tokens per row, losslessly, by two-slice selection.

    Parameters
    ----------
    target : Tensor, shape (B, K, L + 1, V)
        Next-token distributions of the target after each prefix of each path, in float16,
        bfloat16, float32 or float64.  Equal prefixes must have equal distributions.
    draft : Tensor, shape (B, K, L, V)
        Next-token distributions of the draft model, which the paths were sampled from; see
        `otlp.batched.sample`.
    draft_tokens : Tensor of int, shape (B, K, L)
        Drafted paths, without padding: verify rows with fewer or shorter paths in a separate call,
        and single paths of any lengths with `otlp.batched.verify_requests`.
    generator : torch.Generator, Tensor or None
        Generator on the same device; None uses the default generator of PyTorch.  Or uniform random
        numbers, float64 of shape (B, K + L + 2), see `otlp.batched.uniforms`.
    validate : bool
        Whether to check the values of the input, which waits for the device.  Skipped under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    BatchedRound
        Accepted tokens and one more token, distributed as samples of the target.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        If an argument is invalid; the message names the argument and the row.  Distributions after
        equal prefixes may differ by rounding, up to the tolerance of their sums; the output
        distribution may then be off by the same amount.

    Notes
    -----
    Cost: `two_slice_step` on B K L nodes, in L sequential steps.  A prefix that several paths share
    is processed once per path, to keep shapes fixed.  Rows are processed in chunks, as in
    `otlp.batched.martingale`.

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
    # Levels are processed one at a time, but all levels are copied to float64.
    _, paths, levels, vocab_size = target.shape
    width = paths * levels * max(vocab_size, SECTIONS)
    verify = verify_block if paths == 1 else verify_selected
    return BatchedRound(*in_chunks(verify, width, target, draft, tokens, numbers))


def verify_selected(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Select a path of each row and block-verify it; return the fields of `BatchedRound`."""
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
    """Compute the score laws of drafted paths, from the root down.

    Parameters
    ----------
    p : Tensor, shape (B, K, L + 1, V), float64
    q : Tensor, shape (B, K, L, V), float64
        Normalised rows.
    tokens : Tensor, shape (B, K, L), int64

    Returns
    -------
    leaves : BatchedScoreLaw
        Score laws of the B K paths; ``leaves.gain`` is Gamma(path) / Q(path).
    splits : list of L TwoSlice
        Splits of the B K nodes at each level.
    weights : Tensor, shape (B K, L + 1), float64
        Weight w of each prefix in block verification.
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
    """Return the residuals of block verification after each prefix of one path.

    Parameters
    ----------
    p : Tensor, shape (B, L + 1, V), float64
    q : Tensor, shape (B, L, V), float64
    splits : list of L TwoSlice
        Splits of the nodes on the path; they define Gamma, the draft distribution of the path.
    weights : Tensor, shape (B, L + 1), float64
        Weight w of each prefix of the path.

    Returns
    -------
    Tensor, shape (B, L, V)
        (w p - q r)^+ for all prefixes except the whole path.
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
            f"draft_tokens must have at most {MOST_PATHS:,} paths per row, got {paths:,}"
        )
    vocab_size = target.shape[-1]
    for name, rows, levels in (("target", target, length + 1), ("draft", draft, length)):
        expected = (batch, paths, levels, vocab_size)
        if tuple(rows.shape) != expected:
            raise InvalidInputError(
                f"{name} must have shape {expected} for draft_tokens of shape "
                f"{tuple(draft_tokens.shape)}, got {tuple(rows.shape)}"
            )
    check_devices(target=target, draft=draft, draft_tokens=draft_tokens)


def _check_values(target: Tensor, draft: Tensor, tokens: Tensor) -> None:
    for name, rows in (("target", target), ("draft", draft)):
        check_distribution(rows, row_sums(rows), name)
        _check_shared(rows, tokens, name)
    padding = f"paths must have no padding ({PADDING}); use verify_requests for one path per row"
    check_drafted(tokens, torch.ones_like(tokens, dtype=torch.bool), draft, AXES, padding)


def _check_shared(rows: Tensor, tokens: Tensor, name: str) -> None:
    own = torch.arange(rows.shape[1], device=rows.device)
    for level in range(rows.shape[2]):
        prefix = tokens[..., :level]
        first = (prefix[:, :, None] == prefix[:, None]).all(3).to(torch.int8).argmax(2)
        row, path = (first != own).nonzero(as_tuple=True)
        pairs = row, first[row, path], path
        reason = f"paths {{}} and {{}} share their first {level} tokens"
        _check_equal(rows[:, :, level], pairs, name, reason)


def _check_equal(
    rows: Tensor, pairs: tuple[Tensor, Tensor, Tensor], name: str, reason: str
) -> None:
    """Raise `InvalidInputError` unless rows after equal prefixes are equal.

    Parameters
    ----------
    rows : Tensor, shape (B, N, V)
    pairs : tuple of 3 Tensor, shape (M,)
        Index of a row, and indices of two paths in the row.
    name : str
        Name of the argument in the message.
    reason : str
        Reason in the message, with two ``{}`` for the paths.
    """
    tolerance = SUM_TOLERANCE[rows.element_size()]

    def gaps(row: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor]:
        return ((rows[row, one].double() - rows[row, other].double()).abs().amax(1),)

    (gap,) = in_chunks(gaps, rows.shape[2], *pairs)
    if bool((gap > tolerance).any()):
        at = int((gap > tolerance).to(torch.int8).argmax())
        row, one, other = (int(part[at]) for part in pairs)
        raise InvalidInputError(
            f"{name} row {row}: {reason.format(one, other)}, so the next distributions must be "
            f"equal, got a difference of {float(gap[at]):.3g}"
        )
