"""How likely the target's draw is among the n best candidates of a draft that shares its noise.

Let E_i be exponential, the target draw arg min E_i / p_i and the draft's candidates be the tokens
with the least E_i / q_i.  Given that i wins at the target, at time t ~ Exp(1), E_i is p_i t and
E_j is p_j t plus an exponential variable, so that candidate j comes before i with probability
1 - exp(-t c_j), c_j = (r q_j - p_j)^+, r = p_i / q_i, independently of the others: i is accepted
if at most n - 1 of these happen.  That is a function f_n(r) alone, falling in r, and the acceptance
is sum_i p_i f_n(p_i / q_i).  For n = 1 it is 1 / (1 + sum_j c_j), which gives
sum_i 1 / sum_j max(p_j / p_i, q_j / q_i) of Daliri, Musco and Suresh 2025.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.checks import whole_number
from otlp.distribution import FloatArray, as_distribution
from otlp.errors import InvalidInputError

STEP = 0.2
"""Of the quadrature in log t, where nothing changes faster than a scale of one: 1e-12."""

LATEST, MISSED = 45.0, 1e-17
"""Nothing that matters happens later, or with less probability before the first point."""

LARGEST_RATIO = 1e300
"""Of p to q; beyond that a token is as good as never drafted."""


def coupled_acceptance(
    p: FloatArray, q: FloatArray, n: int, counted: int = 128, knots: int = 128
) -> tuple[float, float]:
    """Acceptance of n candidates under shared noise at one place, and a bound of its error.

    Parameters
    ----------
    p, q : array_like, shape (V,)
        The target's and the draft's distribution.
    n : int
        Candidates, at least 1; fewer where the draft has fewer tokens.
    counted : int
        The draft's likeliest tokens, which are counted one by one.  Of the others it is only known
        how many come in all, as Poisson variables of the same chance of none: the greater of two,
        so what is found is too low by at most the bound.
    knots : int
        So many of the likeliest tokens, and so many values of r between, for which f_n is worked
        out; it is interpolated between them, and the bound holds what it falls.

    Returns
    -------
    acceptance, bound : float
        The bound is 0 for n = 1, and where there are no more tokens than `counted` and twice
        `knots`; then the acceptance is right to some 1e-12.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If a row is no distribution, their sizes differ, or a number is less than 1, `knots` than 2.

    Notes
    -----
    O(V log V) for n = 1; else that and n `counted` `knots` times some 60 points of a quadrature.

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
        raise InvalidInputError(f"p has {p.size} tokens and q {q.size}: both must have the same")
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
        rates, _ = _Rest(p, q, np.flatnonzero(q)).rates(ratios)
        return float(np.sum(p[can] / (1.0 + rates))), 0.0
    order = np.argsort(-q, kind="stable")[: np.count_nonzero(q)]
    heavy, rest = order[:counted], _Rest(p, q, order[counted:])
    if can.size <= 2 * knots:
        found, bound = _falling(ratios, p[heavy], q[heavy], rest, n)
        return float(p[can] @ found), float(p[can] @ bound)
    light = np.sort(ratios[knots:])
    places = np.unique(np.linspace(0, light.size - 1, knots).astype(int))
    at = np.unique(np.append(ratios[:knots], light[places]))
    found, bound = _falling(at, p[heavy], q[heavy], rest, n)
    if at.size == 1:
        return float(p[can].sum() * found[0]), float(p[can].sum() * bound[0])
    above = np.searchsorted(at, ratios).clip(1, at.size - 1)
    exact = at[above] == ratios
    falls = np.where(exact | (at[0] == ratios), 0.0, found[above - 1] - found[above])
    between = np.interp(np.log(ratios), np.log(at), found)
    bounds = falls + np.maximum(bound[above - 1], bound[above])
    return float(p[can] @ between), float(p[can] @ bounds)


class _Rest:
    """Tokens that are not counted one by one: sums over those with p / q below a ratio."""

    def __init__(self, p: FloatArray, q: FloatArray, tokens: npt.NDArray[np.integer]) -> None:
        with np.errstate(over="ignore"):
            self.ratios = np.minimum(p[tokens] / q[tokens], LARGEST_RATIO)
        order = np.argsort(self.ratios)
        p, q, self.ratios = p[tokens][order], q[tokens][order], self.ratios[order]
        powers = np.array([q, p, q * q, q * p, p * p])
        self.sums = np.concatenate([np.zeros((5, 1)), np.cumsum(powers, axis=1)], axis=1)

    def rates(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of c and of c^2."""
        q, p, qq, qp, pp = self.sums[:, np.searchsorted(self.ratios, ratios)]
        rates = np.maximum(ratios * q - p, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = ratios * (ratios * qq - 2.0 * qp) + pp
        return rates, np.where(squares > 0.0, squares, 0.0)


def _falling(
    ratios: FloatArray, p: FloatArray, q: FloatArray, rest: _Rest, n: int
) -> tuple[FloatArray, FloatArray]:
    """f_n at some ratios, shape (m,), and how much too low it may be."""
    rates = np.maximum(ratios[:, None] * q - p, 0.0)
    others, squares = rest.rates(ratios)
    scale = np.maximum(rates.sum(axis=1) + others, 1.0)
    first = np.log(MISSED) / (n + 1) - np.log(scale)
    points = int(np.ceil((np.log(LATEST) - first.min()) / STEP)) + 1
    steps = (np.log(LATEST) - first) / (points - 1)
    times = np.exp(first[:, None] + steps[:, None] * np.arange(points))
    # chances that 0, ..., n - 1 candidates come before
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
    mean = others[:, None] * times
    poisson = [np.exp(-mean)]
    for at in range(1, n):
        poisson.append(poisson[-1] * mean / at)
    enough = np.zeros(times.shape)
    for at in range(n):
        enough += counts[at] * np.sum(poisson[: n - at], axis=0)
    weights = steps[:, None] * times * np.exp(-times)
    # a second variable of a token, where what is counted leaves it open
    with np.errstate(over="ignore"):
        twice = few * np.minimum(0.5 * squares[:, None] * times**2, 1.0)
    return 1.0 - (weights * (1.0 - enough)).sum(axis=1), (weights * twice).sum(axis=1)
