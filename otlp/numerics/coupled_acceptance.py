"""Probability that the target's token is among n candidates of a draft that shares its noise.

Let E_i be exponential variables.  The target's token is arg min E_i / p_i, and the draft's
candidates are the tokens with the least E_i / q_i.  Given that the target's token is i, at time
t ~ Exp(1), E_i is p_i t and E_j is p_j t plus an exponential variable.  So candidate j comes before
i with probability 1 - exp(-t c_j), c_j = (r q_j - p_j)^+, r = p_i / q_i, independently of the other
candidates, and i is accepted if at most n - 1 candidates come before it.  Its probability f_n(r)
depends on r only and decreases in r, and the acceptance is sum_i p_i f_n(p_i / q_i).  For n = 1,
f_n(r) is 1 / (1 + sum_j c_j), and the acceptance is sum_i 1 / sum_j max(p_j / p_i, q_j / q_i) of
Daliri, Musco and Suresh 2025.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.checks import whole_number
from otlp.distribution import FloatArray, as_distribution
from otlp.errors import InvalidInputError
from otlp.timing import loaded

STEP = 0.2
"""Step of the quadrature in log t.  The integrand varies on a scale of one; the error is 1e-12."""

LATEST, MISSED = 45.0, 1e-17
"""Last time of the quadrature, and probability neglected before its first point."""

LARGEST_RATIO = 1e300
"""Largest ratio p / q; beyond it a token is practically never drafted."""


def coupled_acceptance(
    p: FloatArray, q: FloatArray, n: int, counted: int = 128, knots: int = 128
) -> tuple[float, float]:
    """Return the acceptance of n candidates under shared noise at one position, and an error bound.

    Parameters
    ----------
    p, q : array_like, shape (V,)
        Distributions of the target and the draft.
    n : int
        Number of candidates, at least 1; fewer are used if the draft has fewer tokens.
    counted : int
        Number of the draft's most likely tokens that are counted individually.  Each other token
        counts as a Poisson variable with the same probability of zero, which can exceed 1.  The
        result is therefore too low, by at most the bound.
    knots : int
        Number of most likely tokens, and number of further values of r, for which f_n is computed.
        f_n is interpolated between them, and the bound includes its decrease between them.

    Returns
    -------
    acceptance, bound : float
        The bound is 0 for n = 1, and for at most `counted` and at most twice `knots` tokens; the
        acceptance is then accurate to about 1e-12.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If `p` or `q` is not a distribution, if their sizes differ, or if a number is less than 1
        (`knots`: less than 2).

    Notes
    -----
    O(V log V) for n = 1; otherwise also n `counted` `knots` times about 60 quadrature points.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.numerics.coupled_acceptance import coupled_acceptance
    >>> p, q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    >>> [round(coupled_acceptance(p, q, n)[0], 4) for n in (1, 2, 3)]
    [0.5143, 0.825, 1.0]
    """
    p, q = as_distribution(p, "p"), as_distribution(q, "q")
    if p.size != q.size:
        raise InvalidInputError(f"p and q must have equally many tokens, got {p.size} and {q.size}")
    whole_number(n, "n")
    whole_number(counted, "counted")
    whole_number(knots, "knots", 2)
    can = np.flatnonzero((p > 0.0) & (q > 0.0))
    if not can.size:
        return 0.0, 0.0
    can = can[np.argsort(-p[can], kind="stable")]
    with np.errstate(over="ignore"):
        ratios = np.minimum(p[can] / q[can], LARGEST_RATIO)
    if n == 1:
        rates, _ = _Uncounted(p, q, np.flatnonzero(q)).rates(ratios)
        return float(np.sum(p[can] / (1.0 + rates))), 0.0
    order = np.argsort(-q, kind="stable")[: np.count_nonzero(q)]
    heavy, rest = order[:counted], _Uncounted(p, q, order[counted:])
    if can.size <= 2 * knots:
        found, bound = _acceptance_at(ratios, p[heavy], q[heavy], rest, n)
        return float(p[can] @ found), float(p[can] @ bound)
    light = np.sort(ratios[knots:])
    places = np.unique(np.linspace(0, light.size - 1, knots).astype(int))
    at = np.unique(np.append(ratios[:knots], light[places]))
    found, bound = _acceptance_at(at, p[heavy], q[heavy], rest, n)
    above = np.searchsorted(at, ratios).clip(1, at.size - 1)  # 0 if there is only one knot
    exact = at[above] == ratios
    falls = np.where(exact | (at[0] == ratios), 0.0, found[above - 1] - found[above])
    between = np.interp(np.log(ratios), np.log(at), found)
    bounds = falls + np.maximum(bound[above - 1], bound[above])
    return float(p[can] @ between), float(p[can] @ bounds)


class _Uncounted:
    """Tokens that are not counted individually: sums over the tokens with p / q below a ratio."""

    def __init__(self, p: FloatArray, q: FloatArray, tokens: npt.NDArray[np.integer]) -> None:
        with np.errstate(over="ignore"):
            self.ratios = np.minimum(p[tokens] / q[tokens], LARGEST_RATIO)
        order = np.argsort(self.ratios)
        p, q, self.ratios = p[tokens][order], q[tokens][order], self.ratios[order]
        powers = np.array([q, p, q * q, q * p, p * p])
        self.sums = np.concatenate([np.zeros((5, 1)), np.cumsum(powers, axis=1)], axis=1)

    def rates(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums of c and of c^2."""
        q, p, qq, qp, pp = self.sums[:, np.searchsorted(self.ratios, ratios)]
        rates = np.maximum(ratios * q - p, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = ratios * (ratios * qq - 2.0 * qp) + pp
        return rates, np.where(squares > 0.0, squares, 0.0)


def _acceptance_at(
    ratios: FloatArray, p: FloatArray, q: FloatArray, rest: _Uncounted, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return f_n at the given ratios, shape (m,), and bounds on how much too low it is."""
    rates = np.maximum(ratios[:, None] * q - p, 0.0)
    others, squares = rest.rates(ratios)
    scale = np.maximum(rates.sum(axis=1) + others, 1.0)
    first = np.log(MISSED) / (n + 1) - np.log(scale)
    points = int(np.ceil((np.log(LATEST) - first.min()) / STEP)) + 1
    steps = (np.log(LATEST) - first) / (points - 1)
    times = np.exp(first[:, None] + steps[:, None] * np.arange(points))
    # Probabilities that 0, ..., n - 1 counted candidates come before the target's token.
    counts = np.zeros((n, *times.shape))
    counts[0] = 1.0
    for rate in rates.T:
        if rate.any():
            none = np.exp(-rate[:, None] * times)
            some = -np.expm1(-rate[:, None] * times)
            for at in range(n - 1, 0, -1):
                counts[at] = counts[at] * none + counts[at - 1] * some
            counts[0] *= none
    few = counts.sum(axis=0)
    # Probability that at most n - 1 candidates, counted or not, come before it.
    fewer = np.arange(n - 1, -1, -1)[:, None, None]
    poisson = loaded("scipy.special").pdtr(fewer, others[:, None] * times)
    enough = (counts * poisson).sum(axis=0)
    weights = steps[:, None] * times * np.exp(-times)
    # Bound on a Poisson variable of 2 or more while the counted tokens leave the outcome open.
    with np.errstate(over="ignore"):
        twice = few * np.minimum(0.5 * squares[:, None] * times**2, 1.0)
    return 1.0 - (weights * (1.0 - enough)).sum(axis=1), (weights * twice).sum(axis=1)
