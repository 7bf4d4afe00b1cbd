"""The two convex functions as integrals, for systems with too many terms to list.

Consider an exponential race of tokens with rates e^alpha: the first drafted token to arrive is a
sample from the softmax.  The arrival time of token j is above t with the survival probability
a_j = exp(-t e^alpha_j), and the sum over all sets A of drafted tokens becomes a product,

    sum of c_A prod_{j in A} a_j  =  n! [x^n] exp(ignored x) prod_j (1 + a_j (exp(q_j x) - 1)),

so value, gradient and Hessian are integrals over t whose cost does not depend on the number of
sets.  The paper lists the sets instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray
from otlp.drafts.token_sets import pascal, powers_of
from otlp.numerics.compiled import REASSOCIATE, compiled

TAIL = 3.8
"""Extension of the quadrature beyond the times of the largest and the smallest rate."""

NEWTON_STEP = 1.0
"""Step of the quadrature for Hessians."""

WIDTH = 8
"""Number of nodes per block, for the processor's vector instructions."""

LARGEST = 690.0
"""Logarithm of a finite number that replaces infinity, so that its product with 0 is 0."""


@dataclass(frozen=True, eq=False)
class LogSumExpIntegral:
    """One of the two convex functions; equal to `LogSumExp` to about 1e-13.

    Attributes
    ----------
    draft : ndarray, shape (G,)
        Draft probabilities of the tokens with a variable.
    n : int
        Number of drafts.
    ignored : float
        Probability of the tokens without a variable that a tuple may contain.
    wanted : ndarray, shape (G,)
        Wanted mass w_i of each variable.
    slack : float
        0 for the outer system, 1 for the inner system.
    step : float
        Step of the quadrature in x, where t = exp(x - exp(-x)) times the largest total rate.
        The error is about exp(-7.5 / step).
    """

    draft: FloatArray
    n: int
    ignored: float
    wanted: FloatArray
    slack: float
    step: float = 0.25

    def evaluate(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        """Return the value, and the mass of each variable, shape (G,): gradient plus `wanted`.

        O(G n^2) for each of about 100 nodes.
        """
        fastest, nodes = _nodes(alpha, self.slack, self.step)
        value, given = _evaluate(
            self.draft, self.n, self.ignored, alpha, self.slack, fastest, nodes
        )
        return value - float(self.wanted @ alpha), given

    def hessian(self, alpha: FloatArray) -> FloatArray:
        """Return the Hessian to about 1e-3 of each entry, shape (G, G); O(G n^2 + G^2 n) per node.

        This accuracy suffices for Newton steps.
        """
        _, nodes = _nodes(alpha, self.slack, NEWTON_STEP)
        return _hessian(self.draft, self.n, self.ignored, alpha, self.slack, nodes)


@compiled
def _nodes(alpha: FloatArray, slack: float, step: float) -> tuple[float, FloatArray]:
    """Return the log of the largest total rate, and nodes log t and weights, (2, m, WIDTH)."""
    slowest, peak = np.inf, -np.inf  # NumPy's `min` and `max` take .5 s to compile.
    for a in alpha:
        slowest, peak = min(slowest, a), max(peak, a)
    if slack > 0.0:
        slowest, peak = max(slowest, 0.0) + np.log1p(np.exp(-abs(slowest))), max(peak, 0.0)
    total = np.exp(-peak) if slack > 0.0 else 0.0
    for a in alpha:
        total += np.exp(a - peak)
    fastest = peak + np.log(total)
    blocks = int(np.ceil((fastest - slowest + 2.0 * TAIL) / (step * WIDTH)))
    nodes = np.empty((2, blocks, WIDTH))
    for block in range(blocks):
        for k in range(WIDTH):
            x = step * (block * WIDTH + k) - TAIL
            nodes[0, block, k] = min(x - np.exp(-x) - fastest, LARGEST)
            nodes[1, block, k] = step * (1.0 + np.exp(-x))
    return fastest, nodes


@compiled(fastmath=REASSOCIATE)
def _multiply_factor(
    series: FloatArray, alive: FloatArray, powers: FloatArray, binomial: FloatArray, out: FloatArray
) -> None:
    """Multiply series, shape (n + 1, WIDTH), by 1 + alive (exp(q x) - 1); `out` may be `series`."""
    for d in range(series.shape[0] - 1, -1, -1):
        same, product = series[d], out[d]
        for k in range(alive.size):
            product[k] = same[k]
        for e in range(1, d + 1):
            factor, lower = binomial[d, e] * powers[e], series[d - e]
            for k in range(alive.size):
                product[k] += alive[k] * (factor * lower[k])


@compiled
def _survival(
    alpha: FloatArray, log_time: FloatArray, rates: FloatArray, alive: FloatArray
) -> None:
    """Write e^(alpha_j) t, and P(no arrival of this rate by time t)."""
    for j in range(alpha.size):
        for k in range(log_time.size):
            rates[j, k] = np.exp(min(alpha[j] + log_time[k], LARGEST))
            alive[j, k] = np.exp(-rates[j, k])


@compiled(fastmath=REASSOCIATE)
def _evaluate(
    draft: FloatArray,
    n: int,
    ignored: float,
    alpha: FloatArray,
    slack: float,
    fastest: float,
    nodes: FloatArray,
) -> tuple[float, FloatArray]:
    """Return the sum of the LogSumExp terms and its gradient."""
    size, width = draft.size, nodes.shape[2]  # A loop of constant length would not be vectorised.
    given = np.zeros(size)
    powers, binomial = powers_of(draft, n), pascal(n)
    # before[j] is the product over the variables before j.
    before, after = np.empty((size + 1, n + 1, width)), np.empty((n + 1, width))
    rates, alive = np.empty((2, size, width))
    others, first = np.empty(width), np.empty(width)
    nothing = powers_of(np.array([ignored]), n)[0]
    empty = nothing[n]
    whole = ignored
    for q in draft:
        whole += q
    every = whole**n - empty
    # log w = log w0 + integral of (exp(-w0 t) - exp(-w t)) dt / t
    value = every * fastest
    for block in range(nodes.shape[1]):
        log_time, weight = nodes[0, block], nodes[1, block].copy()
        _survival(alpha, log_time, rates, alive)
        for d in range(n + 1):
            before[0, d] = nothing[d]
            after[d] = 1.0 if d == 0 else 0.0
        for j in range(size):
            _multiply_factor(before[j], alive[j], powers[j], binomial, before[j + 1])
        for k in range(width):
            still = np.exp(-slack * np.exp(log_time[k]))
            value += weight[k] * (
                every * np.exp(-np.exp(min(log_time[k] + fastest, LARGEST)))
                - still * (before[size, n, k] - empty)
            )
            weight[k] *= still
        for j in range(size - 1, -1, -1):
            first[:] = 0.0
            for e in range(1, n + 1):
                others[:] = 0.0
                for d in range(n - e + 1):
                    one, two, factor = before[j, d], after[n - e - d], binomial[n - e, d]
                    for k in range(width):
                        others[k] += factor * one[k] * two[k]
                factor = binomial[n, e] * powers[j, e]
                for k in range(width):
                    first[k] += factor * others[k]
            rate, still_alive, total = rates[j], alive[j], 0.0
            for k in range(width):
                total += weight[k] * rate[k] * still_alive[k] * first[k]
            given[j] += total
            _multiply_factor(after, alive[j], powers[j], binomial, after)
    return value, given


@compiled(fastmath=REASSOCIATE)
def _hessian(
    draft: FloatArray, n: int, ignored: float, alpha: FloatArray, slack: float, nodes: FloatArray
) -> FloatArray:
    """Return the Hessian of the LogSumExp terms."""
    size, width = draft.size, nodes.shape[2]
    hessian = np.zeros((size, size))
    powers, binomial = powers_of(draft, n), pascal(n)
    nothing = powers_of(np.array([ignored]), n)[0]
    # odds[j, d]: series of "j is drafted and alive" over that of "j is not drafted, or alive".
    odds, rest = np.zeros((size, n + 1, width)), np.zeros((size, n + 1, width))
    rates, alive = np.empty((2, size, width))
    product, total = np.empty((n + 1, width)), np.empty(width)
    for block in range(nodes.shape[1]):
        _survival(alpha, nodes[0, block], rates, alive)
        for d in range(n + 1):
            for k in range(width):
                product[d, k] = nothing[d]
        for j in range(size):
            for d in range(1, n + 1):
                for k in range(width):
                    total[k] = powers[j, d]
                for e in range(1, d):
                    factor, one = binomial[d, e] * powers[j, d - e], odds[j, e]
                    for k in range(width):
                        total[k] -= factor * one[k]
                for k in range(width):
                    odds[j, d, k] = alive[j, k] * total[k]
            _multiply_factor(product, alive[j], powers[j], binomial, product)
        for j in range(size):
            for d in range(1, n + 1):
                own = rest[j, d]
                for k in range(width):
                    own[k] = 0.0
                for e in range(1, d + 1):
                    factor, one, two = binomial[d, e], odds[j, e], product[d - e]
                    for k in range(width):
                        own[k] += factor * one[k] * two[k]
            for k in range(width):
                # If the time overflows, the mass may have underflowed to 0.
                time = np.exp(nodes[0, block, k])
                if slack > 0.0 and rest[j, n, k] > 0.0:
                    drawn = nodes[1, block, k] * np.exp(-slack * time) * rates[j, k]
                    hessian[j, j] += slack * time * drawn * rest[j, n, k]
            # Multiply by the rates here, because the rates might overflow on their own.
            for d in range(1, n):
                one, two, factor, rate = odds[j, d], rest[j, d], binomial[n, d], rates[j]
                for k in range(width):
                    time = np.exp(nodes[0, block, k])
                    one[k] *= factor * rate[k]
                    two[k] *= rate[k] * nodes[1, block, k] * np.exp(-slack * time)
        for i in range(size):
            for j in range(i):
                both = 0.0
                for d in range(1, n):
                    one, two = odds[i, d], rest[j, n - d]
                    for k in range(width):
                        both += one[k] * two[k]
                hessian[i, j] -= both
    for i in range(size):
        for j in range(i):
            hessian[j, i] = hessian[i, j]
            hessian[i, i] -= hessian[i, j]
            hessian[j, j] -= hessian[i, j]
    return hessian
