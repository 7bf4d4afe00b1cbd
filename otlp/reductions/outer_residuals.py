"""Outer residuals: the mass of each token outside H* that the outer system has to accept.

The outer system may accept any mass up to p(i) of a token i outside H*.  Accepted masses p_i that
satisfy Theorem 6.1 can be fixed in advance; the inner and the outer system are then independent,
and every condition on tokens is an equality.  Rejected tuples draw from the outer residuals
p(i) - p_i.
"""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability


def outer_masses(
    target: FloatArray, draft: FloatArray, n: int, subset: Mask, ratios: IntArray
) -> FloatArray:
    """Solve Theorem 6.1 by Theorem 6.2, in the order of q/p ascending, for i.i.d. drafts.

    Parameters
    ----------
    target, draft : ndarray, shape (V,)
        p and q.
    n : int
        Number of drafts.
    subset : ndarray of bool, shape (V,)
        H*, a minimiser of psi.
    ratios : ndarray of int
        The drafted tokens by p/q ascending, as returned by `best_prefix`.

    Returns
    -------
    ndarray, shape (V,)
        p_i outside H*, at most p(i), and 0 inside; sums to 1 - q(H*)^n.

    Notes
    -----
    In this order all minima of psi in Eq. 10 are cumulative minima over one list (Global
    Resolution, section 6.1); O(V).
    """
    order = ratios[~subset[ratios]][::-1]
    never_drafted = float(target[~subset & (draft == 0.0)].sum())
    p, q = target[order], draft[order]
    # Mass of the tuples with this token and no earlier one: psi rises by the mass and falls by p.
    before = float(draft[subset].sum()) + np.cumsum(q[::-1])[::-1]
    first = before**n * inclusion_probability(q / before, n)
    psi = np.concatenate(([-never_drafted], np.cumsum(first - p) - never_drafted))
    least = np.minimum.accumulate(psi)
    at_least = psi == least
    # If the minimum moves by one step, p_i is exactly this mass, without cancellation.
    result = np.zeros(target.size)
    result[order] = np.where(
        at_least[1:] & at_least[:-1], np.minimum(first, p), np.clip(p + np.diff(least), 0.0, p)
    )
    return result


@compiled
def level_masses(
    target: FloatArray, draft: FloatArray, n: int, subset: Mask, ratios: IntArray
) -> FloatArray:
    """Solve Theorem 6.1 by a water-filling level: p_i = min(p(i), C q(i)), for i.i.d. drafts.

    Not in the paper.  The solution of Theorem 6.2 is a vertex, where as many constraints as
    possible are tight; a tight constraint sends the variables of the convex solver to infinity.
    This solution is in the interior as far as possible, and proportional to q at the level.

    Parameters
    ----------
    target, draft, n, subset, ratios
        As in `outer_masses`.

    Returns
    -------
    ndarray, shape (V,)
        As in `outer_masses`; O(V).

    Notes
    -----
    Feasible: with delta = -psi(H*), tokens by p/q ascending and prefix sums P, Q, the curve P +
    delta stays above Q^n; past the point where p/q reaches C it is replaced by a line to (1, 1),
    a chord above the convex Q^n.  So q(S)^n bounds every prefix from below, hence every set.
    """
    # rest[k] is the draft mass outside the subset from place k of the order on.
    result, rest, q = np.zeros(target.size), np.empty(ratios.size), 0.0
    for k in range(ratios.size - 1, -1, -1):
        if not subset[ratios[k]]:
            q += draft[ratios[k]]
        rest[k] = q
    left = 1.0 if q >= 1.0 else -np.expm1(n * np.log1p(-q))
    level, clipped = 0.0, False
    for k in range(ratios.size):
        x = ratios[k]
        if subset[x]:
            continue
        if not clipped:
            # The level is final at the first token whose ratio exceeds what it and later tokens
            # would need.  If the rest of q is subnormal, the level clips nothing.
            level = max(left / rest[k], 0.0)
            clipped = level * draft[x] < target[x]
        if clipped:
            result[x] = min(level * draft[x], target[x])
        else:
            result[x] = target[x]
            left -= target[x]
    return result
