"""Verification of concatenated requests with different numbers of drafted tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.block import verify_block
from otlp.batched.checks import (
    check_devices,
    check_distribution,
    check_drafted,
    check_floats,
    check_tokens,
    reads_values,
)
from otlp.batched.numerics import SECTIONS
from otlp.batched.paths import BatchedRound
from otlp.batched.rows import PADDING, in_chunks, row_sums
from otlp.batched.sampling import random_numbers
from otlp.checks import whole_number
from otlp.errors import InvalidInputError


def verify_requests(
    target: Tensor,
    draft: Tensor | None,
    draft_tokens: Tensor,
    cu_num_draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    max_spec_len: int | None = None,
    validate: bool = True,
) -> BatchedRound:
    """Verify one drafted path for each of B requests by block verification.

    The requests have T drafted tokens in total.

    Parameters
    ----------
    target : Tensor, shape (T + B, V)
        Next-token distributions of the target after each prefix of a path, request by request: a
        request with t drafted tokens has t + 1 rows.
    draft : Tensor, shape (T, V), or None
        Distributions that the tokens were sampled from; None for deterministic drafts (n-grams).
    draft_tokens : Tensor of int, shape (T,)
        Concatenated paths.  A path ends at the first token `PADDING`; later tokens are ignored.
    cu_num_draft_tokens : Tensor of int, shape (B,)
        Cumulative numbers of drafted tokens, inclusive; the last entry is T.
    generator : torch.Generator, Tensor or None
        Generator on the same device; None uses the default generator of PyTorch.  Or uniform random
        numbers, float64 of shape (B, `max_spec_len` + 3).
    max_spec_len : int, optional
        Maximum number of drafted tokens of a request.  By default the number is read from the
        device, which waits for it; the number is required in compiled code and under CUDA graph
        capture.
    validate : bool
        Whether to check the values of the input, which waits for the device.  Skipped in compiled
        code and under CUDA graph capture.

    Returns
    -------
    BatchedRound
        Tokens have shape (B, `max_spec_len` + 1), padded with `PADDING`.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        If an argument is invalid; the message names the argument and the row.

    Notes
    -----
    Cost: O((T + B) V); requests are padded one chunk at a time.  Source: Sun et al. 2024, Block
    Verification Accelerates Speculative Decoding, Algorithm 2.

    Examples
    --------
    Two requests, with two drafted tokens and with none:

    >>> import torch
    >>> from otlp import batched
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(4, 3), model.expand(2, 3)
    >>> paths, ends = torch.tensor([1, 0]), torch.tensor([2, 2])
    >>> played = batched.verify_requests(target, draft, paths, ends)
    >>> played.accepted.tolist(), played.tokens.shape     # draft and target agree
    ([2, 0], torch.Size([2, 3]))
    """
    check_tokens(draft_tokens, "draft_tokens", "T")
    check_tokens(cu_num_draft_tokens, "cu_num_draft_tokens", "B")
    drafted, batch = len(draft_tokens), len(cu_num_draft_tokens)
    _check_form(target, draft, drafted, batch)
    given = {"draft_tokens": draft_tokens, "cu_num_draft_tokens": cu_num_draft_tokens}
    check_devices(target=target, **given, **({} if draft is None else {"draft": draft}))
    tokens, ends = draft_tokens.long(), cu_num_draft_tokens.long()
    starts = torch.nn.functional.pad(ends, (1, 0))[:-1]
    counts = ends - starts
    reads = reads_values(validate, target)
    if reads:
        _check_counts(counts, ends, drafted)
    if max_spec_len is None:
        longest = int(counts.max()) if batch else 0
    else:
        longest = whole_number(max_spec_len, "max_spec_len", 0)
    if reads:
        if batch and int(counts.max()) > longest:
            raise InvalidInputError(
                f"max_spec_len must be at least {int(counts.max())}, the number of drafted tokens "
                f"of a request, got {longest}"
            )
        _check_values(target, draft, tokens, _before_padding(tokens, starts, drafted))
    counts = counts.clamp(max=longest)
    numbers = random_numbers((batch, longest + 3), generator, target, validate)
    most, vocab_size = max(1, longest), target.shape[1]
    target = target.detach()
    draft = None if draft is None else draft.detach()
    level = torch.arange(most + 1, device=target.device)

    def verify(
        start: Tensor, count: Tensor, request: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Verify some requests, padded with q = 0, where no token is accepted."""
        inside = level[:-1] < count[:, None]
        at = torch.where(inside, start[:, None] + level[:-1], drafted)
        path = torch.nn.functional.pad(tokens, (0, 1), value=PADDING)[at]
        kept = (path >= 0).long().cumprod(1).bool()
        path = torch.where(kept, path, 0)
        if draft is None or not drafted:
            q = torch.zeros(*path.shape, vocab_size, dtype=target.dtype, device=target.device)
            q.scatter_(2, path[..., None], 1.0)
        else:
            q = draft[at.clamp(max=drafted - 1)]
        p = target[(start + request)[:, None] + torch.minimum(level, count[:, None])]
        q = torch.where(kept[..., None], q, 0.0)
        if longest == 0:  # `verify_block` needs paths of at least one token.
            numbers = torch.nn.functional.pad(numbers, (1, 0))
        return verify_block(p[:, None], q[:, None], path[:, None], numbers)

    width = (most + 1) * max(vocab_size, SECTIONS)
    requests = torch.arange(batch, device=target.device)
    found = BatchedRound(*in_chunks(verify, width, starts, counts, requests, numbers))
    return found._replace(tokens=found.tokens[:, : longest + 1])


def _check_form(target: Tensor, draft: Tensor | None, drafted: int, batch: int) -> None:
    check_floats(target, "target", 2, "T + B, ")
    if len(target) != drafted + batch:
        raise InvalidInputError(
            f"target must have shape ({drafted + batch}, V) for {drafted} drafted tokens of "
            f"{batch} requests, got {tuple(target.shape)}"
        )
    if draft is not None:
        check_floats(draft, "draft", 2, "T, ")
        if tuple(draft.shape) != (drafted, target.shape[1]):
            raise InvalidInputError(
                f"draft must have shape {(drafted, target.shape[1])}, one row per drafted token "
                f"over the vocabulary of target, got {tuple(draft.shape)}"
            )


def _check_counts(counts: Tensor, ends: Tensor, drafted: int) -> None:
    if bool((counts < 0).any()) or (int(ends[-1]) if len(ends) else 0) != drafted:
        raise InvalidInputError(
            "cu_num_draft_tokens must be nondecreasing and end with the number of drafted tokens, "
            f"{drafted}, got {ends.tolist()!s:.60}"
        )


def _before_padding(tokens: Tensor, starts: Tensor, drafted: int) -> Tensor:
    """Mask of the tokens before the padding of their request, shape (T,)."""
    padded = (tokens == PADDING).long()
    before = torch.nn.functional.pad(padded.cumsum(0), (1, 0))
    request = torch.searchsorted(starts, torch.arange(drafted, device=tokens.device), right=True)
    return before[1:] == before[starts][request - 1]


def _check_values(target: Tensor, draft: Tensor | None, tokens: Tensor, checked: Tensor) -> None:
    check_distribution(target, row_sums(target), "target")
    if draft is None:
        draft = torch.ones_like(target[:1]).expand(len(tokens), -1)
    else:
        check_distribution(draft, row_sums(draft), "draft", checked)
    tokens = torch.where(checked, tokens, 0)
    check_drafted(tokens, checked, draft, ("token",), f"{PADDING} ends a path")
