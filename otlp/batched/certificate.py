"""Acceptance rate of the batched plan and an upper bound on the optimum, for each row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import largest_gap, prefixes
from otlp.batched.martingale_rule import BIN_ARRAYS, martingale_plan
from otlp.batched.ratio_bins import layout_for, masses
from otlp.batched.rows import Rows, by_rows, prepare, row_sums

FINE = 2**14
"""Number of bins for the upper bound, eight times the number of bins of the plan."""


class Certificate(NamedTuple):
    """Acceptance rate of a plan and an upper bound for every plan.

    Attributes
    ----------
    acceptance : Tensor, shape (B,), float64
        Probability that the selected draft is accepted, sum min(p, y); 0 without drafts.
    upper_bound : Tensor, shape (B,), float64
        Minimum of 1 + p(S) - q(S)^n over sets S of the lowest ratios, where S is a union of bins
        (Global Resolution, Eq. 4).

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> certificate = batched.acceptance(target, draft, torch.tensor([[0, 1]]))
    >>> round(certificate.upper_bound.item(), 6)
    0.85
    """

    acceptance: Tensor
    upper_bound: Tensor


def acceptance(
    target: Tensor, draft: Tensor, draft_tokens: Tensor, *, validate: bool = True
) -> Certificate:
    """Compute the acceptance rate of `martingale` and an upper bound for each row.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `martingale`.  Only the number of draft tokens in each row matters.

    Returns
    -------
    Certificate
        The acceptance rate is that of the selection distribution in use.  The upper bound holds for
        every rule.  The bound exceeds the optimum by at most 2^-10, because tokens of nearly equal
        ratios share one of 16,384 bins; at V = 128,256 it exceeds the optimum by about 1e-9.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> certificate = batched.acceptance(target, draft, torch.tensor([[0, 1]]))
    >>> round(certificate.acceptance.item(), 6), round(certificate.upper_bound.item(), 6)
    (0.85, 0.85)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    return Certificate(*by_rows(_certify, rows, extra=BIN_ARRAYS * FINE))


def _certify(rows: Rows) -> tuple[Tensor, Tensor]:
    """Compute sum min(p, y), and 1 + P(S) - Q(S)^n for the sets S of the lowest bins."""
    coupling, bins = martingale_plan(rows)
    kept = torch.minimum(rows.target, rows.draft * coupling.level.gather(1, bins))
    acceptance = kept.sum(1, keepdim=True) / row_sums(rows.target)

    max_n, n = rows.tokens.shape[1], rows.n.clamp(min=1)
    layout = layout_for(max_n, FINE)
    bins = layout.bins(rows.target, rows.draft)
    target, draft = (masses(part, bins, layout.size) for part in (rows.target, rows.draft))
    bound = 1.0 - largest_gap(prefixes(target, draft, max_n, layout), n, max_n)
    none = rows.n == 0
    return acceptance.masked_fill(none, 0.0)[:, 0], bound.masked_fill(none, 0.0)[:, 0]
