"""What the batched plans are worth: acceptance and its upper bound, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.histogram import FRACTION_BITS, histogram_plan
from otlp.batched.martingale import BatchedPlan, martingale_plan
from otlp.batched.numerics import power
from otlp.batched.rows import Rows, by_rows, prepare
from otlp.batched.without_replacement import rank_plan, widest


class Certificate(NamedTuple):
    """Acceptance of a plan and a bound on that of every plan.

    Attributes
    ----------
    acceptance : Tensor, shape (B,), float64
        Probability that the selected draft is accepted, sum min(p, y); 0 without drafts.
    upper_bound : Tensor, shape (B,), float64
        The least 1 + p(S) - q(S)^n over sets S of lowest ratio (Global Resolution, Eq. 4).

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
    """Certify the acceptance of `verify` on these rows.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `verify`; of `draft_tokens` only the number in each row matters.

    Returns
    -------
    Certificate
        From the unrounded p and the selection distribution as used.  The sets S are all
        prefixes of the sorted tokens, so `upper_bound` is the optimum.  Costs as much as `verify`.

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
    return _certify(martingale_plan, rows)


def acceptance_histogram(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    *,
    fraction_bits: int = FRACTION_BITS,
    validate: bool = True,
) -> Certificate:
    """Certify the acceptance of `verify_histogram` on these rows.

    Parameters
    ----------
    target, draft, draft_tokens, fraction_bits, validate
        As for `verify_histogram`; of `draft_tokens` only the number in each row matters.

    Returns
    -------
    Certificate
        The sets S are all unions of lowest bins, so `upper_bound` is at least the optimum.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> certificate = batched.acceptance_histogram(target, draft, torch.tensor([[0, 1]]))
    >>> (certificate.upper_bound - certificate.acceptance).item() <= batched.certified_loss()
    True
    """
    rows = prepare(target, draft, draft_tokens, validate)
    return _certify(histogram_plan(rows, fraction_bits), rows)


def acceptance_without_replacement(
    target: Tensor, draft: Tensor, draft_tokens: Tensor, *, validate: bool = True
) -> Certificate:
    """Certify the acceptance of `verify_without_replacement` on these rows.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `verify_without_replacement`; of `draft_tokens` only the number in each row matters.

    Returns
    -------
    Certificate
        `upper_bound` is the least 1 + p(S) - P(all drafts are in S) over sets S of lowest ratio,
        the optimum.  Costs as much as `verify_without_replacement`.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.5, 0.1, 0.3]])
    >>> draft = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    >>> found = batched.acceptance_without_replacement(target, draft, torch.tensor([[0, 1]]))
    >>> bool(found.upper_bound - found.acceptance < 1e-6)
    True
    """

    def certified(rows: Rows) -> tuple[Tensor, Tensor]:
        plan = rank_plan(rows, validate)
        p, _ = rows.normalised()
        return torch.minimum(p, plan.selection).sum(1), plan.bound

    rows = prepare(target, draft, draft_tokens, validate)
    return Certificate(*by_rows(certified, rows, most=widest(rows)))


def _certify(plan: Callable[[Rows], BatchedPlan], rows: Rows) -> Certificate:
    """Compare y with p, and P(S) with Q(S)^n, where S are the groups up to each."""

    def certified(rows: Rows) -> tuple[Tensor, Tensor]:
        coupling, group, selection = plan(rows)
        p, q = rows.normalised()
        empty = torch.zeros_like(coupling.ends)
        held = empty.scatter_add(1, group, p.masked_fill(q == 0, 0.0)).cumsum_(1)
        drafted = power(empty.scatter_add(1, group, q).cumsum_(1), rows.n.clamp(min=1.0))
        bound = 1.0 + held.sub_(drafted).amin(1).clamp(max=0.0)
        none = rows.n[:, 0] == 0
        return torch.minimum(p, selection).sum(1), bound.masked_fill(none, 0.0)

    return Certificate(*by_rows(certified, rows))
