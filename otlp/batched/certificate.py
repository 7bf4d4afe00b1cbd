"""What the batched plans are worth: acceptance and its upper bound, row by row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.coupling import power
from otlp.batched.histogram import FRACTION_BITS, bin_coupling
from otlp.batched.rows import Rows, prepare
from otlp.batched.verify import sorted_coupling

__all__ = ["Certificate", "acceptance", "acceptance_histogram"]


class Certificate(NamedTuple):
    """Acceptance of a plan and a bound on that of every plan.

    Attributes
    ----------
    acceptance : Tensor, shape (B,), float64
        Probability that the selected draft is accepted, sum min(p, y); 0 without drafts.
    upper_bound : Tensor, shape (B,), float64
        The least 1 + p(S) - q(S)^n over sets S of lowest ratio (Global Resolution, Eq. 4).
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
        From the unrounded p and the selection law as used.  The sets S are all prefixes of the
        sorted tokens, so `upper_bound` is the optimum.  Costs as much as `verify`.
    """
    rows = prepare(target, draft, draft_tokens, validate)
    ratio = rows.ratio()
    coupling, order = sorted_coupling(rows, ratio)
    p, q = rows.normalised()
    law = torch.clamp(ratio.double(), coupling.floor, coupling.ceiling).mul_(q)
    held = p.masked_fill(q == 0, 0.0).gather(1, order)
    return _certificate(rows, law, held, q.gather(1, order))


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
    """
    rows = prepare(target, draft, draft_tokens, validate)
    coupling, index = bin_coupling(rows, fraction_bits)
    p, q = rows.normalised()
    law = coupling.ratio.gather(1, index).mul_(q)
    empty = torch.zeros_like(coupling.ends)
    held = empty.scatter_add(1, index, p.masked_fill(q == 0, 0.0))
    return _certificate(rows, law, held, empty.scatter_add(1, index, q))


def _certificate(rows: Rows, law: Tensor, held: Tensor, mass: Tensor) -> Certificate:
    """Compare the law y with p, and prefix sums P of `held` with Q^n, for prefix sums Q of q."""
    none = rows.n[:, 0] == 0
    accepted = torch.minimum(rows.target.double() / rows.target_sum, law).sum(1)
    drafted = power(mass.cumsum(1), rows.n.clamp(min=1.0))
    bound = 1.0 + (held.cumsum(1) - drafted).amin(1).clamp(max=0.0)
    return Certificate(accepted.masked_fill(none, 0.0), bound.masked_fill(none, 0.0))
