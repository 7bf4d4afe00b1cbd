"""The same two convex functions as an integral, for systems with too many terms to list.

Give every token an exponential clock of rate e^alpha: the clock that rings first among the
drafted ones is a draw from the softmax.  At time t token j has not rung with probability
a_j = exp(-t e^alpha_j), and the sum over all sets A of drafted tokens becomes a product,

    sum of c_A prod_{j in A} a_j  =  n! [x^n] exp(ignored x) prod_j (1 + a_j (exp(q_j x) - 1)),

so value, gradient and Hessian are integrals over t whose cost does not grow with the number of
sets.  Not in the paper, which lists the sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray
from otlp.drafts.token_sets import pascal
from otlp.numerics.compiled import compiled

__all__ = ["Race"]

STEP = 0.25
"""Step of the quadrature in x, where t = exp(x - exp(-x)) in units of the fastest race."""

TAIL = 3.8
"""How far the quadrature goes beyond the fastest and the slowest race."""

LARGEST = 690.0
"""Logarithm of a number that is as good as infinite, but whose product with zero is zero."""


@dataclass(frozen=True, eq=False)
class Race:
    """One of the two convex functions; the same answers as `LogSumExp` to about 1e-13.

    Attributes
    ----------
    draft : ndarray, shape (G,)
        Draft probabilities of the tokens that have a variable.
    n : int
        Number of drafts.
    ignored : float
        Probability of the tokens that a tuple may hold beside.
    wanted : ndarray, shape (G,)
        The mass w_i that each variable should get.
    slack : float
        0 for the outer system, 1 for the inner.
    """

    draft: FloatArray
    n: int
    ignored: float
    wanted: FloatArray
    slack: float

    def value_and_gradient(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        """Value, and gradient of shape (G,); O(G n^2) for each of about 100 nodes."""
        value, given = self._evaluate(alpha)
        return value - float(self.wanted @ alpha), given - self.wanted

    def given(self, alpha: FloatArray) -> FloatArray:
        """Mass that each variable gets, shape (G,)."""
        return self._evaluate(alpha)[1]

    def hessian(self, alpha: FloatArray) -> FloatArray:
        """Hessian, shape (G, G); O(G n^2 + G^2 n) a node."""
        _, nodes = _nodes(alpha, self.slack)
        return _hessian(self.draft, self.n, self.ignored, alpha, self.slack, nodes)

    def _evaluate(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        fastest, nodes = _nodes(alpha, self.slack)
        return _evaluate(self.draft, self.n, self.ignored, alpha, self.slack, fastest, nodes)


def _nodes(alpha: FloatArray, slack: float) -> tuple[float, FloatArray]:
    """Log rate of the fastest race, and nodes log t with their weights, shape (2, m)."""
    peak = max(float(alpha.max()), 0.0) if slack else float(alpha.max())
    fastest = peak + np.log(np.exp(alpha - peak).sum() + (np.exp(-peak) if slack else 0.0))
    slowest = float(np.logaddexp(alpha.min(), 0.0)) if slack else float(alpha.min())
    x = np.arange(-TAIL, fastest - slowest + TAIL, STEP)
    log_time = np.minimum(x - np.exp(-x) - fastest, LARGEST)
    return fastest, np.stack((log_time, STEP * (1.0 + np.exp(-x))))


@compiled
def _powers(draft: FloatArray, n: int) -> FloatArray:
    """The series of exp(q_j x), one a row, as d! times the coefficient of x^d: powers of q_j."""
    powers = np.ones((draft.size, n + 1))
    for j in range(draft.size):
        for d in range(1, n + 1):
            powers[j, d] = powers[j, d - 1] * draft[j]
    return powers


@compiled
def _times(
    series: FloatArray, alive: float, powers: FloatArray, binomial: FloatArray, result: FloatArray
) -> None:
    """Multiply a series by 1 + alive (exp(q x) - 1); the result may be the series itself."""
    for d in range(series.size - 1, -1, -1):
        total = 0.0
        for e in range(1, d + 1):
            total += binomial[d, e] * powers[e] * series[d - e]
        result[d] = series[d] + alive * total


@compiled
def _evaluate(
    draft: FloatArray,
    n: int,
    ignored: float,
    alpha: FloatArray,
    slack: float,
    fastest: float,
    nodes: FloatArray,
) -> tuple[float, FloatArray]:
    """Sum of the LogSumExp terms, and its gradient."""
    size = draft.size
    given = np.zeros(size)
    powers, binomial = _powers(draft, n), pascal(n)
    before = np.empty((size + 1, n + 1))  # row j: the product over the variables before j
    before[0] = _powers(np.array([ignored]), n)[0]
    after = np.empty(n + 1)
    empty = ignored**n
    every = (ignored + draft.sum()) ** n - empty
    # log w = log w0 + integral of (exp(-w0 t) - exp(-w t)) dt / t
    value = every * fastest
    for at in range(nodes.shape[1]):
        log_time, weight = nodes[0, at], nodes[1, at]
        still = np.exp(-slack * np.exp(log_time))
        for j in range(size):
            alive = np.exp(-np.exp(min(alpha[j] + log_time, LARGEST)))
            _times(before[j], alive, powers[j], binomial, before[j + 1])
        value += weight * (
            every * np.exp(-np.exp(min(log_time + fastest, LARGEST)))
            - still * (before[size, n] - empty)
        )
        after[:] = 0.0
        after[0] = 1.0
        for j in range(size - 1, -1, -1):
            rate = np.exp(min(alpha[j] + log_time, LARGEST))
            alive = np.exp(-rate)
            first = 0.0
            for e in range(1, n + 1):
                others = 0.0
                for d in range(n - e + 1):
                    others += binomial[n - e, d] * before[j, d] * after[n - e - d]
                first += binomial[n, e] * powers[j, e] * others
            given[j] += weight * still * rate * alive * first
            _times(after, alive, powers[j], binomial, after)
    return value, given


@compiled
def _hessian(
    draft: FloatArray, n: int, ignored: float, alpha: FloatArray, slack: float, nodes: FloatArray
) -> FloatArray:
    """Hessian of the LogSumExp terms; good to what a Newton step needs."""
    size = draft.size
    hessian = np.zeros((size, size))
    powers, binomial = _powers(draft, n), pascal(n)
    # Row j: the series of "j is drafted and alive" over that of "j is not drafted, or alive".
    odds, rest = np.zeros((size, n + 1)), np.zeros((size, n + 1))
    rates, product = np.empty(size), np.empty(n + 1)
    for at in range(nodes.shape[1]):
        time = np.exp(nodes[0, at])
        weight = nodes[1, at] * np.exp(-slack * time)
        product[:] = _powers(np.array([ignored]), n)[0]
        for j in range(size):
            rates[j] = np.exp(min(alpha[j] + nodes[0, at], LARGEST))
            alive = np.exp(-rates[j])
            for d in range(1, n + 1):
                total = powers[j, d]
                for e in range(1, d):
                    total -= binomial[d, e] * odds[j, e] * powers[j, d - e]
                odds[j, d] = alive * total
            _times(product, alive, powers[j], binomial, product)
        for j in range(size):
            for d in range(1, n + 1):
                total = 0.0
                for e in range(1, d + 1):
                    total += binomial[d, e] * odds[j, e] * product[d - e]
                rest[j, d] = total
        for i in range(size):
            # a product of two rates may overflow where the mass has underflowed to nothing
            if slack > 0.0 and rest[i, n] > 0.0:
                hessian[i, i] += weight * slack * time * rates[i] * rest[i, n]
            for j in range(i):
                both = 0.0
                for d in range(1, n):
                    both += binomial[n, d] * odds[i, d] * rest[j, n - d]
                if both > 0.0:
                    hessian[i, j] -= weight * rates[i] * rates[j] * both
    for i in range(size):
        for j in range(i):
            hessian[j, i] = hessian[i, j]
            hessian[i, i] -= hessian[i, j]
            hessian[j, j] -= hessian[i, j]
    return hessian
