"""Baselines: batched forms of the verification rules that engines use today.

All rules are lossless; for i.i.d. drafts `otlp.batched.martingale` is also optimal.  The rules are
named after the solvers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from otlp.batched.checks import check_different, reads_values
from otlp.batched.numerics import TINY, draw_index, inclusion_probability
from otlp.batched.rejection import accept_or_replace, is_drafted
from otlp.batched.rows import PADDING, Rows, by_rows, prepare, row_sums
from otlp.batched.sampling import uniforms

BISECTIONS = 30
"""Bisection steps for the division factor of K-SEQ; the upper end is used, which is valid."""


def speculative_sampling(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify the first draft of each row by speculative sampling; other drafts are ignored.

    Parameters, results and errors are those of `otlp.batched.martingale`, except that `accepted`
    refers to the first draft.  Source: Leviathan et al. 2023, Algorithm 1.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.tensor([[0, 1]])
    >>> tokens, accepted = batched.speculative_sampling(target, draft, drafts)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    return _verify(_speculative_sampling, target, draft, draft_tokens, generator, validate)


def recursive_rejection(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify i.i.d. drafts by recursive rejection sampling.

    The residual after each draft is the target for the next draft.  Parameters, results and errors
    are those of `otlp.batched.martingale`.  Source: Miao et al. 2024 (SpecInfer), Algorithm 2.
    Cost: N passes of single-draft sampling.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.tensor([[0, 1]])
    >>> tokens, accepted = batched.recursive_rejection(target, draft, drafts)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    return _verify(_recursive_rejection, target, draft, draft_tokens, generator, validate)


def recursive_rejection_without_replacement(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify distinct drafts by recursive rejection sampling without replacement.

    Each drafted token is removed from the draft distribution of the next draft.  Parameters,
    results and errors are those of `otlp.batched.martingale`, except that a row that contains a
    token twice raises `ZeroProbabilityError`.  The drafts of a row must be in the order drawn, each
    from q without the earlier drafts, as by `otlp.batched.sample_without_replacement`.  Source:
    Jeon et al. 2024; Yang et al. 2024; equivalent to `otlp.solvers.RecursiveRejection` on
    `otlp.WithoutReplacement`.  Cost: N passes of single-draft sampling.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.tensor([[0, 1]])
    >>> tokens, accepted = batched.recursive_rejection_without_replacement(target, draft, drafts)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    if reads_values(validate, target):
        check_different(rows.tokens, PADDING)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    tokens, accepted = by_rows(_recursive_rejection_without_replacement, rows, numbers)
    return tokens, accepted


def k_seq(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify drafts by K-SEQ: accept each draft in turn with probability min(1, p / (rho q)).

    Parameters, results and errors are those of `otlp.batched.martingale`.  The division factor rho
    in [1, n] solves 1 - (1 - beta)^n = rho beta with beta = sum min(p / rho, q); it is found by
    bisection in 30 passes.  Source: Sun et al. 2023 (SpecTr), Algorithm 2.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = torch.tensor([[0, 1]])
    >>> tokens, accepted = batched.k_seq(target, draft, drafts)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    return _verify(_k_seq, target, draft, draft_tokens, generator, validate)


def _verify(
    rule: Callable[[Rows, Tensor], tuple[Tensor, Tensor]],
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None,
    validate: bool,
) -> tuple[Tensor, Tensor]:
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    tokens, accepted = by_rows(rule, rows, numbers)
    return tokens, accepted


def _speculative_sampling(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    level = row_sums(rows.target) / row_sums(rows.draft)
    place = rows.drafted.to(torch.int8).argmax(1, keepdim=True)
    first = rows.tokens.gather(1, place)
    tokens, _ = accept_or_replace(rows, level, first.clamp(min=0), numbers[:, -2], numbers[:, -1])
    return tokens, tokens == first[:, 0]


def _recursive_rejection(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    return _rejections(rows, numbers, lambda draft, token, drafted: draft)


def _recursive_rejection_without_replacement(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    return _rejections(rows, numbers, _without)


def _without(draft: Tensor, token: Tensor, drafted: Tensor) -> Tensor:
    """Return the draft of the next place: without the drafted token, normalised again."""
    left = draft.scatter(1, token, draft.gather(1, token).masked_fill(drafted, 0.0))
    total = left.sum(1, keepdim=True)
    # The remaining mass of q may be subnormal or zero.
    return left / torch.where(total > 0.0, total, 1.0)


def _rejections(
    rows: Rows, numbers: Tensor, following: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Verify place by place; `following` returns the draft distribution of the next place."""
    target, draft = rows.normalised()
    verified = torch.full_like(rows.tokens[:, 0], -1)
    for place in range(rows.tokens.shape[1]):
        drafted, token = rows.drafted[:, place, None], rows.tokens[:, place, None].clamp(min=0)
        p, q = target.gather(1, token), draft.gather(1, token)
        take = (drafted & (numbers[:, place, None] * q < p))[:, 0]
        verified = torch.where(take & (verified < 0), token[:, 0], verified)
        left = (target - draft).clamp_(min=0.0)
        total = left.sum(1, keepdim=True)
        # The residual is zero if p = q, which only rounding can reject.  Padding rejects nothing.
        target = torch.where(drafted & (total > 0), left / total, target)
        draft = following(draft, token, drafted)
    replacement = draw_index(target, numbers[:, -1:])
    tokens = torch.where(verified < 0, replacement[:, 0], verified)
    return tokens, is_drafted(rows, tokens)


def _k_seq(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    p, q = rows.normalised()
    n = rows.n.clamp(min=1).double()
    low, high = torch.ones_like(n), n.clone()
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        beta = torch.minimum(p / middle, q).sum(1, keepdim=True)
        short = inclusion_probability(beta, n) > middle * beta
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    once = torch.minimum(p / high, q)
    beta = once.sum(1, keepdim=True)
    each = rows.at_drafts(once) / rows.at_drafts(q).clamp(min=TINY)
    take = rows.drafted & (numbers[:, : rows.tokens.shape[1]] < each)
    first = take.to(torch.int8).argmax(1, keepdim=True)
    verified = rows.tokens.clamp(min=0).gather(1, first)[:, 0]
    none = rows.n == 0
    taken = once * (inclusion_probability(beta, n) / beta.clamp(min=TINY)).masked_fill(none, 0.0)
    left = (p - taken).clamp_(min=0.0)
    left = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    replacement = draw_index(left, numbers[:, -1:])
    tokens = torch.where(take.any(1), verified, replacement[:, 0])
    return tokens, is_drafted(rows, tokens)
