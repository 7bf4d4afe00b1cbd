"""Checks of `otlp.batched` on tiny vocabularies.

The slices of `verify` are enumerated over all tuples.  Outputs are counted over `ROWS` rows with
random drafts.  The count of a token is binomial; a count with a tail probability below
`FALSE_ALARM` is an error.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from tests.fuzz.instance import Instance, convert
from tests.fuzz.oracle import Truth, truth
from tests.fuzz.wrong import expect

try:
    import torch
except ImportError:
    torch = None

ROWS = 1024
FALSE_ALARM = 1e-12
PRECISION = {"torch float64": 1e-9, "torch float32": 1e-6}
"""Tolerance of the acceptance of the slices; half precision uses that of float32."""

LOST, ABOVE = 2.0**-8, 2.0**-10
"""Maximum loss from the optimum, and excess of the bound, due to tokens that share a bin."""


def check_batched(instance: Instance) -> str:
    """Check one function of `otlp.batched` on one pair of rows."""
    from otlp import batched

    true = truth(instance)
    if not isinstance(true, Truth):  # the form rounds masses to 0
        return "refused"
    rng = np.random.default_rng(instance.seed)
    name = instance.solver.removeprefix("batched.")
    target = convert(instance.target, instance.form)
    draft = convert(instance.drafts[0], instance.form)
    if name == "verify" and instance.n > 0:
        _check_slices(instance, true, target, draft)
    padding = int(rng.integers(0, 3)) if instance.n > 0 else 1
    if instance.scheme == "without-replacement":
        # the n smallest exponential times of rate q
        with np.errstate(divide="ignore"):
            arrival = np.log(rng.exponential(size=(ROWS, true.target.size))) - np.log(true.laws[0])
        tokens = np.argsort(arrival, axis=1)[:, : instance.n]
    else:
        tokens = rng.choice(true.target.size, (ROWS, instance.n), p=true.laws[0])
    tokens = np.concatenate((tokens, np.full((ROWS, padding), batched.PADDING)), axis=1)
    generator = torch.Generator().manual_seed(instance.seed)
    rows = target.expand(ROWS, -1), draft.expand(ROWS, -1), torch.tensor(tokens)
    output, accepted = getattr(batched, name)(*rows, generator)
    considered = tokens[:, :1] if name == "speculative_sampling" else tokens
    drafted = (considered == output.numpy()[:, None]).any(axis=1)
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
    """Return the smaller tail probability of a count."""
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
