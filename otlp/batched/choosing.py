"""Choice of a verification rule by the shape of the draft tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.martingale_rule import martingale
from otlp.batched.paths import BatchedRound, verify_paths
from otlp.batched.ragged import verify_requests
from otlp.errors import InvalidInputError


def verify(
    target: Tensor,
    draft: Tensor | None,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    cu_num_draft_tokens: Tensor | None = None,
    max_spec_len: int | None = None,
    validate: bool = True,
) -> tuple[Tensor, Tensor] | BatchedRound:
    """Verify drafts losslessly with the best rule of this package for their shape.

    The parameters, results and errors are those of the chosen rule.  Tokens of shape (B, N) are
    verified by `otlp.batched.martingale` (speculative sampling for N = 1), tokens of shape
    (B, K, L) by `otlp.batched.verify_paths`, and tokens of shape (T,) with `cu_num_draft_tokens` by
    `otlp.batched.verify_requests`.  Only the last rule accepts `max_spec_len`, and ``draft=None``.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = batched.sample(draft, 2, generator)
    >>> tokens, accepted = batched.verify(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    if cu_num_draft_tokens is not None:
        return verify_requests(
            target,
            draft,
            draft_tokens,
            cu_num_draft_tokens,
            generator,
            max_spec_len=max_spec_len,
            validate=validate,
        )
    if max_spec_len is not None:
        raise InvalidInputError("max_spec_len must be left out without cu_num_draft_tokens")
    if draft is None:
        raise InvalidInputError("draft must be a tensor, got None; cu_num_draft_tokens allows None")
    paths = isinstance(draft_tokens, Tensor) and draft_tokens.ndim == 3
    rule = verify_paths if paths else martingale
    return rule(target, draft, draft_tokens, generator, validate=validate)
