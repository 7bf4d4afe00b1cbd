"""The convex functions of the outer and the inner system, with merged LogSumExp terms.

A token accepts its share e^alpha_i / (slack + sum of e^alpha_j over the drafted tokens) of each
tuple.  The alpha for which token i has total mass w_i minimise

    sum over sets A of c_A log(slack + sum_{i in A} e^alpha_i)  -  sum_i w_i alpha_i,

where c_A is the mass of all tuples whose set of tokens is A.  Slack is 0 for the outer system
(Global Resolution, Eq. 12), whose tuples must all be accepted, and 1 for the inner system (Eq. 15).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import TokenSets
from otlp.numerics.compiled import compiled


@dataclass(frozen=True, eq=False)
class LogSumExp:
    """One of the two convex functions.

    Attributes
    ----------
    terms : TokenSets
        Sets A of variables and their coefficients from `otlp.drafts.token_sets.list_sets`, where
        the ignored tokens have probability q(H*) for the outer system (Eq. 117) and 0 for the
        inner system (Eq. 119).  All terms are positive; the paper's alternating sums cancel.
    wanted : ndarray, shape (G,)
        Wanted mass w_i of each variable.
    slack : float
        0 or 1, the constant inside the logarithm.
    """

    terms: TokenSets
    wanted: FloatArray
    slack: float

    def evaluate(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        """Return the value, and the mass of each variable, shape (G,): gradient plus `wanted`.

        O(nnz).
        """
        sets = self.terms
        value, given = _evaluate(sets.members, sets.offsets, sets.mass, alpha, self.slack)
        return value - float(self.wanted @ alpha), given

    def hessian(self, alpha: FloatArray) -> FloatArray:
        """Return the Hessian, shape (G, G); O(sum of squared set sizes)."""
        sets = self.terms
        return _hessian(sets.members, sets.offsets, sets.mass, alpha, self.slack)


# A sum of exponentials below this, relative to the global maximum, is scaled by its own maximum.
SMALL = 1e-250


@compiled(inline="always")
def _own_sum(tokens: IntArray, alpha: FloatArray, slack: float) -> tuple[float, float, float]:
    """Return the maximum exponent of a set, and with it scaled out the slack and the total sum."""
    own = 0.0 if slack > 0.0 else -np.inf
    for a in tokens:
        own = max(own, alpha[a])
    total = rest = slack * np.exp(-own) if slack > 0.0 else 0.0
    for a in tokens:
        total += np.exp(alpha[a] - own)
    return own, rest, total


@compiled
def _evaluate(
    members: IntArray, offsets: IntArray, mass: FloatArray, alpha: FloatArray, slack: float
) -> tuple[float, FloatArray]:
    """Return the sum of the LogSumExp terms and its gradient."""
    given = np.zeros(alpha.size)
    peak = 0.0 if slack > 0.0 else -np.inf
    for a in range(alpha.size):
        peak = max(peak, alpha[a])
    weight = np.empty(alpha.size)
    for a in range(alpha.size):
        weight[a] = np.exp(alpha[a] - peak)
    rest = slack * np.exp(-peak) if slack > 0.0 else 0.0
    value = 0.0
    for j in range(mass.size):
        first, last = offsets[j], offsets[j + 1]
        total = rest
        for at in range(first, last):
            total += weight[members[at]]
        if total > SMALL:
            value += mass[j] * (np.log(total) + peak)
            scale = mass[j] / total
            for at in range(first, last):
                given[members[at]] += scale * weight[members[at]]
        else:
            own, _, total = _own_sum(members[first:last], alpha, slack)
            value += mass[j] * (np.log(total) + own)
            for at in range(first, last):
                given[members[at]] += mass[j] * np.exp(alpha[members[at]] - own) / total
    return value, given


@compiled
def _hessian(
    members: IntArray, offsets: IntArray, mass: FloatArray, alpha: FloatArray, slack: float
) -> FloatArray:
    """Return the Hessian of the LogSumExp terms."""
    hessian = np.zeros((alpha.size, alpha.size))
    for j in range(mass.size):
        first, last = offsets[j], offsets[j + 1]
        own, rest, total = _own_sum(members[first:last], alpha, slack)
        rest /= total
        for at in range(first, last):
            a = members[at]
            share = np.exp(alpha[a] - own) / total
            diagonal = rest  # 1 - share, without cancellation
            for other in range(first, last):
                b = members[other]
                if b != a:
                    off = np.exp(alpha[b] - own) / total
                    diagonal += off
                    hessian[a, b] -= mass[j] * share * off
            hessian[a, a] += mass[j] * share * diagonal
    return hessian
