"""`otlp.batched` on tiny vocabularies: slices enumerated, outputs counted.

The slices of `verify` are summed over all tuples.  What the functions return is counted over
`ROWS` rows whose drafts are drawn here; a token's count is binomial, and one whose tail
probability is below `FALSE_ALARM` is called wrong.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from tests.fuzz.instance import Instance, hand_over
from tests.fuzz.oracle import Truth, truth
from tests.fuzz.wrong import expect

try:
    import torch
except ImportError:
    torch = None

ROWS = 1024
FALSE_ALARM = 1e-12
PRECISION = {"torch float64": 1e-9, "torch float32": 1e-6}
"""How near its acceptance the slices must be, in half precision as in float32."""

LOST, ABOVE = 2.0**-8, 2.0**-10
"""What tokens that share a bin may cost of the optimum, and add to its bound."""


def check_batched(instance: Instance) -> str:
    """Try one function of `otlp.batched` on one pair of rows."""
    from otlp import batched

    true = truth(instance)
    if not isinstance(true, Truth):  # masses that the form rounds to 0
        return "refused"
    rng = np.random.default_rng(instance.seed)
    name = instance.solver.removeprefix("batched.")
    target = hand_over(instance.target, instance.form)
    draft = hand_over(instance.drafts[0], instance.form)
    if name == "verify" and instance.n > 0:
        _check_slices(instance, true, target, draft)
    padding = int(rng.integers(0, 3)) if instance.n > 0 else 1
    if instance.scheme == "without-replacement":
        # the first to arrive, each after an exponential time of rate q
        with np.errstate(divide="ignore"):
            arrival = np.log(rng.exponential(size=(ROWS, true.target.size))) - np.log(true.laws[0])
        tokens = np.argsort(arrival, axis=1)[:, : instance.n]
    else:
        tokens = rng.choice(true.target.size, (ROWS, instance.n), p=true.laws[0])
    tokens = np.concatenate((tokens, np.full((ROWS, padding), batched.PADDING)), axis=1)
    generator = torch.Generator().manual_seed(instance.seed)
    rows = target.expand(ROWS, -1), draft.expand(ROWS, -1), torch.tensor(tokens)
    output, accepted = getattr(batched, name)(*rows, generator)
    looked_at = tokens[:, :1] if name == "speculative_sampling" else tokens
    drafted = (looked_at == output.numpy()[:, None]).any(axis=1)
    expect(np.array_equal(drafted, accepted.numpy()), "accepted is wrong", "")
    counts = np.bincount(output.numpy(), minlength=true.target.size)
    for token, mass in enumerate(true.target):
        expect(
            _tail(counts[token], mass) > FALSE_ALARM,
            "the output is not the target",
            f"token {token} of mass {mass:.6g} came {counts[token]} times in {ROWS} rows",
        )
    return "solved"


def _tail(count: int, mass: float) -> float:
    """Probability of a count as far from what is expected, on its side."""
    below, above = binom.cdf(count, ROWS, mass), binom.sf(count - 1, ROWS, mass)
    return min(float(below), float(above))


def _check_slices(
    instance: Instance, true: Truth, target: torch.Tensor, draft: torch.Tensor
) -> None:
    from otlp import batched
    from tests.otlp.batched.conditionals import conditional

    rows = len(true.mass)
    given = target.expand(rows, -1), draft.expand(rows, -1), torch.tensor(true.tokens)
    slices = conditional(*given).numpy()
    off = float(np.abs(slices.sum(axis=1) - 1.0).max())
    expect(float(slices.min()) >= 0.0, "a slice is negative", f"{slices.min()!r}")
    expect(off <= 1e-9, "a slice does not sum to one", f"off by {off:.3g}")
    error = float(np.abs(true.mass @ slices - true.target).sum())
    expect(error <= 1e-9, "the slices do not give the target", f"off by {error:.3g}")
    within = PRECISION.get(instance.form, 1e-6)
    certificate = batched.acceptance(*(part[:1] for part in given))
    accepted = float((true.mass[:, None] * slices)[true.drafted].sum())
    acceptance, bound = (float(part[0]) for part in certificate)
    compared = f"{accepted!r}, {acceptance!r} to {bound!r}, optimum {true.optimum!r}"
    expect(abs(accepted - acceptance) <= within, "certificate is wrong", compared)
    expect(-within <= true.optimum - acceptance <= LOST + within, "not optimal", compared)
    expect(-within <= bound - true.optimum <= ABOVE + within, "certificate is wrong", compared)
