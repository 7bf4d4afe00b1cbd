"""What the batched plan is worth: acceptance and its upper bound, row by row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import largest_gap, prefixes
from otlp.batched.martingale_rule import BIN_ARRAYS, martingale_plan
from otlp.batched.ratio_bins import layout_for, masses
from otlp.batched.rows import Rows, by_rows, prepare, row_sums

FINE = 2**14
"""Bins of the upper bound: eight times as many as those of the plan."""


class Certificate(NamedTuple):
    """Acceptance of a plan and a bound on that of every plan.

    Attributes
    ----------
    acceptance : Tensor, shape (B,), float64
        Probability that the selected draft is accepted, sum min(p, y); 0 without drafts.
    upper_bound : Tensor, shape (B,), float64
        The least 1 + p(S) - q(S)^n over sets S of lowest ratio, each of whole bins (Global
        Resolution, Eq. 4).

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
    """Certify the acceptance of `martingale` on these rows.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `martingale`; of `draft_tokens` only the number in each row matters.

    Returns
    -------
    Certificate
        The acceptance is that of the selection distribution as used.  The bound holds for every
        rule.  The bound exceeds the optimum by at most 2^-10, where tokens of nearly equal ratios
        share one of 16,384 bins; at V = 128,256 by about 1e-9.

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
    beside = BIN_ARRAYS * FINE
    return Certificate(*by_rows(_certify, rows, beside=beside))


def _certify(rows: Rows) -> tuple[Tensor, Tensor]:
    """Compare y with p, and P(S) with Q(S)^n, where S are the tokens of the lowest bins."""
    coupling, bins = martingale_plan(rows)
    kept = torch.minimum(rows.target, rows.draft * coupling.level.gather(1, bins))
    acceptance = kept.sum(1, keepdim=True) / row_sums(rows.target)

    most, n = rows.tokens.shape[1], rows.n.clamp(min=1)
    layout = layout_for(most, FINE)
    bins = layout.bins(rows.target, rows.draft)
    target, draft = (masses(part, bins, layout.size) for part in (rows.target, rows.draft))
    bound = 1.0 - largest_gap(prefixes(target, draft, most, layout), n, most)
    none = rows.n == 0
    return acceptance.masked_fill(none, 0.0)[:, 0], bound.masked_fill(none, 0.0)[:, 0]
