"""What the batched plan is worth: acceptance and its upper bound, row by row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.martingale_rule import martingale_plan
from otlp.batched.numerics import power
from otlp.batched.rows import Rows, by_rows, prepare


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
    """Certify the acceptance of `martingale` on these rows.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `martingale`; of `draft_tokens` only the number in each row matters.

    Returns
    -------
    Certificate
        From the unrounded p and the selection distribution as used.  The sets S are all
        prefixes of the sorted tokens, so `upper_bound` is the optimum.  Costs as much as that.

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
    return Certificate(*by_rows(_certify, prepare(target, draft, draft_tokens, validate)))


def _certify(rows: Rows) -> tuple[Tensor, Tensor]:
    """Compare y with p, and P(S) with Q(S)^n, where S are the tokens up to each."""
    coupling, place, selection = martingale_plan(rows)
    p, q = rows.normalised()
    empty = torch.zeros_like(coupling.ends)
    held = empty.scatter_add(1, place, p.masked_fill(q == 0, 0.0)).cumsum_(1)
    drafted = power(empty.scatter_add(1, place, q).cumsum_(1), rows.n.clamp(min=1.0))
    bound = 1.0 + held.sub_(drafted).amin(1).clamp(max=0.0)
    return torch.minimum(p, selection).sum(1), bound.masked_fill(rows.n[:, 0] == 0, 0.0)
