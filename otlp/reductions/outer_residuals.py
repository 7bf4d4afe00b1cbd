"""Outer residuals: how much of each token outside H* the outer system has to accept.

The outer system leaves open how much it accepts of a token outside H*, up to p(i).  Any accepted
masses p_i that satisfy Theorem 6.1 can be fixed beforehand: then the inner and the outer system
are independent, and every condition on tokens is an equality.  The outer residuals p(i) - p_i
are what rejected tuples draw from.
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
        The drafted tokens by p/q ascending, as `best_prefix` gives them.

    Returns
    -------
    ndarray, shape (V,)
        p_i outside H*, at most p(i), and 0 inside; they sum to 1 - q(H*)^n.

    Notes
    -----
    In this order all minima of psi in Eq. 10 are cumulative minima over one list (Global
    Resolution, section 6.1); O(V).
    """
    order = ratios[~subset[ratios]][::-1]
    never_drafted = float(target[~subset & (draft == 0.0)].sum())
    p, q = target[order], draft[order]
    # Mass of the tuples that hold this token but none before it: psi rises by it and falls by p.
    before = float(draft[subset].sum()) + np.cumsum(q[::-1])[::-1]
    first = before**n * inclusion_probability(q / before, n)
    psi = np.concatenate(([-never_drafted], np.cumsum(first - p) - never_drafted))
    least = np.minimum.accumulate(psi)
    at_least = psi == least
    # Where the minimum moves one step, p_i is that mass itself, free of cancellation.
    result = np.zeros(target.size)
    result[order] = np.where(
        at_least[1:] & at_least[:-1], np.minimum(first, p), np.clip(p + np.diff(least), 0.0, p)
    )
    return result


@compiled(error_model="numpy")
def level_masses(
    target: FloatArray, draft: FloatArray, n: int, subset: Mask, ratios: IntArray
) -> FloatArray:
    """Solve Theorem 6.1 by a water-filling level: p_i = min(p(i), C q(i)), for i.i.d. drafts.

    Not in the paper.  Theorem 6.2 gives vertices, where as many constraints as can be are tight;
    a tight constraint sends the variables of the convex solver to infinity.  This solution lies
    in the interior as far as there is one, and is proportional to q at the level.

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
    # rest[k]: draft mass outside the subset from place k of the order on
    result, rest, q = np.zeros(target.size), np.empty(ratios.size), 0.0
    for k in range(ratios.size - 1, -1, -1):
        if not subset[ratios[k]]:
            q += draft[ratios[k]]
        rest[k] = q
    left = 1.0 if q >= 1.0 else -np.expm1(n * np.log1p(-q))
    for k in range(ratios.size):
        x = ratios[k]
        if subset[x]:
            continue
        # The first token whose own ratio exceeds the level that it and those after it would need;
        # a subnormal rest of q makes a level that clips nothing.
        level = left / rest[k]
        if level * draft[x] < target[x]:
            for y in ratios[k:]:
                if not subset[y]:
                    result[y] = min(max(level, 0.0) * draft[y], target[y])
            break
        result[x] = target[x]
        left -= target[x]
    return result
