"""Choice among independent drafts in proportion to random weights, and the weights of the optimum.

Each token has a position on a ladder of levels: at position k + f it draws level k with probability
1 - f and level k + 1 with probability f.  The upper half of the ladder has precedence over the
lower half.  Within a half, level k has the weight e^k, and one of the drafts is selected in
proportion to their weights.  This choice is a race: a draft of weight w arrives after an
exponential time of rate w, and the first arrival is selected.  So the probability that a draft at a
given level is selected is an integral over its time of arrival, in which the other drafts appear
only through the probabilities that they arrive later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.numerics.anderson import HISTORY, accelerated
from otlp.numerics.compiled import compiled
from otlp.timing import seconds_left

LEVELS = 65
"""Number of levels of each half; their weights span a factor of e^64."""

NODE_STEP = 0.25
"""Step of the trapezoidal rule in the logarithm of time; its relative error is about 1e-15."""

EARLIEST, LATEST = 1.0 - LEVELS - 38.0, 4.0
"""Logarithms of times before which no draft of any level arrives, and after which none is left."""

WINDOW, STALLED = 20, 0.1
"""The iteration has stalled if its best iterate is not below `STALLED` times the best iterate
`WINDOW` iterations earlier."""

FEW_DRAFTS = 8
"""Largest number of drafts for which the levels of a tuple are enumerated, 2^n combinations."""

ROUNDING = 1e-12
"""Difference of two bounds that can be rounding."""

LEAST = 1e-300
"""Least probability of which a logarithm is taken."""


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """Positions of the tokens, and the selection that they realise.

    Attributes
    ----------
    positions : ndarray, shape (V,)
        Position of each token on the ladder, from 0 to 2 LEVELS - 1.
    selection_distribution : ndarray, shape (V,)
        Distribution y of the selected token.
    subset : ndarray of bool, shape (V,)
        H, the tokens in the lower half.
    gap : float
        The bound 1 + p(H) - prod_j q_j(H) on any acceptance, minus sum min(p, y).
    iterations : int
        Number of iterations in both halves.
    """

    positions: FloatArray
    selection_distribution: FloatArray
    subset: Mask
    gap: float
    iterations: int


def random_weights(
    target: FloatArray, drafts: FloatArray, gap: float, max_iterations: int
) -> TokenWeights:
    """Find positions for which sum min(p, y) is the optimum, by a fixed-point iteration.

    Parameters
    ----------
    target : ndarray, shape (V,)
        The target p.
    drafts : ndarray, shape (n, V)
        Distributions q_1, ..., q_n of n independent drafts.
    gap : float
        Gap at which the iteration stops.
    max_iterations : int
        Maximum number of iterations; each half has at least one.

    Notes
    -----
    In each half, y_i is the sum over the drafts of q_j(i) times a function of the position of token
    i, the chance of draft j there.  Given these functions, each token has a position at which y_i
    is p_i, or as near as possible; given all positions, the functions follow.  The iteration
    alternates between both, with Anderson acceleration of the logarithms of the functions.
    Since y(H) = prod_j q_j(H), the gap is the sum of (p - y)^+ in the lower half and of (y - p)^+
    in the upper half.  At a fixed point, only tokens at the top of the lower half and at the bottom
    of the upper half contribute to the gap.  Convergence is measured, not proved.

    If a prefix of the ladder has a better bound than H, it replaces H, and the iteration starts
    again.  A half also stops if the iteration stalls, or at the limit of `otlp.timing.deadline`.
    O(nV) per iteration.
    """
    by_token = np.array(drafts.T, order="C")
    subset = _improved(target, by_token, np.ones(target.size, dtype=bool))
    positions, law, iterations = np.empty(target.size), np.empty(target.size), 0
    while True:
        error, inside = 0.0, subset.astype(float) @ by_token
        for upper in (False, True):
            tokens = np.flatnonzero(subset ^ upper)
            half = _Half(target[tokens], by_token[tokens], inside * upper, upper)
            found = half.solve(0.5 * gap, max(1, max_iterations - iterations))
            positions[tokens], law[tokens] = found.positions + LEVELS * upper, found.law
            iterations += found.iterations
            error += found.error
            if found.prefix is not None and iterations < max_iterations and seconds_left() > 0.0:
                subset[tokens] = found.prefix
                subset = _improved(target, by_token, subset)
                break
        else:
            return TokenWeights(positions, law, subset, error, iterations)


def chances(masses: FloatArray) -> FloatArray:
    """Return the probability that a draft at each level is selected, shape (2 LEVELS, n).

    Parameters
    ----------
    masses : ndarray, shape (2 LEVELS, n)
        Probability of each level for each draft.
    """
    low, high = masses[:LEVELS], masses[LEVELS:]
    halves = _chances_in_half(low, np.zeros(len(low.T))), _chances_in_half(high, low.sum(axis=0))
    return np.concatenate(halves)


def choices(positions: FloatArray) -> FloatArray:
    """Return the probability that each draft of a tuple is selected, shape (m, n).

    Parameters
    ----------
    positions : ndarray, shape (m, n)
        Positions of the drafted tokens of m tuples.
    """
    n = positions.shape[1]
    found = np.zeros(positions.shape)
    if n > FEW_DRAFTS:
        for row, places in enumerate(positions):
            masses = on_levels(np.eye(n), places, 2 * LEVELS)
            found[row] = (masses * chances(masses)).sum(axis=0)
        return found
    levels = np.floor(positions)
    parts = positions - levels
    for ups in product((0.0, 1.0), repeat=n):
        drawn = weights(levels + ups)
        mass = np.prod(np.where(ups, parts, 1.0 - parts), axis=1) / drawn.sum(axis=1)
        found += mass[:, None] * drawn
    return found


def weights(levels: FloatArray) -> FloatArray:
    """Return the weights of drafts at these levels, relative to the largest of each tuple.

    Drafts of the lower half have no weight if another draft is in the upper half.

    Parameters
    ----------
    levels : ndarray, shape (..., n)
        Levels of the drafts of each tuple.
    """
    highest = levels.max(axis=-1, keepdims=True)
    with np.errstate(under="ignore"):
        return np.where((levels < LEVELS) & (highest >= LEVELS), 0.0, np.exp(levels - highest))


@compiled
def on_levels(by_token: FloatArray, positions: FloatArray, count: int) -> FloatArray:
    """Return the probability of each level for each draft, shape (count, n).

    Parameters
    ----------
    by_token : ndarray, shape (m, n)
        Probability of each token for each draft.
    positions : ndarray, shape (m,)
        Positions of the tokens.
    count : int
        Number of levels.
    """
    masses = np.zeros((count, by_token.shape[1]))
    for i in range(positions.size):
        level = int(positions[i])
        part = positions[i] - level
        for j in range(by_token.shape[1]):
            masses[level, j] += by_token[i, j] * (1.0 - part)
            if part > 0.0:
                masses[level + 1, j] += by_token[i, j] * part
    return masses


@compiled
def selected(by_token: FloatArray, positions: FloatArray, chances: FloatArray) -> FloatArray:
    """Return the distribution of the selected token, given the chances at each level; O(nV)."""
    law = np.empty(positions.size)
    for i in range(positions.size):
        level = int(positions[i])
        part = positions[i] - level
        here, above = 0.0, 0.0
        for j in range(by_token.shape[1]):
            here += by_token[i, j] * chances[level, j]
            if part > 0.0:
                above += by_token[i, j] * chances[level + 1, j]
        law[i] = here * (1.0 - part) + above * part
    return law


class _Found(NamedTuple):
    """Positions and law of one half, its part of the gap, and any prefix with a better bound."""

    positions: FloatArray
    law: FloatArray
    error: float
    prefix: Mask | None
    iterations: int


@dataclass(frozen=True, eq=False)
class _Half:
    """Target and drafts of the tokens of one half, and the mass of each draft below this half."""

    target: FloatArray
    by_token: FloatArray
    below: FloatArray
    upper: bool

    def solve(self, gap: float, max_iterations: int) -> _Found:
        """Run the fixed-point iteration until this part of the gap is at most `gap`.

        If acceleration makes the iterate worse, the iteration returns to the best iterate.
        """
        positions = np.full(self.target.size, LEVELS // 2, dtype=float)
        logs = best_image = _logarithm(self._chances(positions))
        iterates, residuals = (deque[FloatArray](maxlen=HISTORY) for _ in range(2))
        errors = list[float]()
        best = _Found(positions, positions, np.inf, None, 0)
        for iteration in range(1, max_iterations + 1):
            _move(self.target, self.by_token, np.exp(logs), positions)
            chances = self._chances(positions)
            law = selected(self.by_token, positions, chances)
            error = self._error(law)
            image = _logarithm(chances)
            if error < best.error:
                best, best_image = _Found(positions.copy(), law, error, None, iteration), image
            errors.append(best.error)
            stalled = iteration > WINDOW and errors[-1] > STALLED * errors[-1 - WINDOW]
            if error <= gap or stalled or seconds_left() <= 0.0:
                break
            prefix = self._better_prefix(positions)
            if prefix is not None:
                return _Found(positions, law, error, prefix, iteration)
            if error > best.error and len(iterates) > 1:
                iterates.clear()
                residuals.clear()
                logs = best_image
                continue
            iterates.append(logs.ravel())
            residuals.append((image - logs).ravel())
            logs = accelerated(iterates, residuals).reshape(image.shape)
            logs = np.maximum.accumulate(np.minimum(logs, 0.0), axis=0)
        return best._replace(iterations=iteration)

    def _chances(self, positions: FloatArray) -> FloatArray:
        masses = on_levels(self.by_token, positions, LEVELS)
        return _chances_in_half(masses, self.below)

    def _error(self, law: FloatArray) -> float:
        """Return the sum of (y - p)^+ in the upper half, or of (p - y)^+ in the lower half."""
        error = law - self.target if self.upper else self.target - law
        return float(np.maximum(error, 0.0).sum())

    def _better_prefix(self, positions: FloatArray) -> Mask | None:
        """Return the tokens up to some level, if this prefix of the half improves the bound."""
        levels = positions.astype(np.int64)
        drafts = [np.bincount(levels, mass, LEVELS).cumsum() for mass in self.by_token.T]
        bounds = np.bincount(levels, self.target, LEVELS).cumsum()
        bounds -= np.prod(drafts + self.below[:, None], axis=0)
        now = -self.below.prod() if self.upper else bounds[-1]
        best = int(bounds.argmin())
        return np.asarray(levels <= best) if bounds[best] < now - ROUNDING else None


def _logarithm(chances: FloatArray) -> FloatArray:
    return np.log(np.maximum(chances, LEAST))


def _chances_in_half(masses: FloatArray, below: FloatArray) -> FloatArray:
    """Return the chances at the levels of one half; drafts below it arrive later than its drafts.

    Parameters
    ----------
    masses : ndarray, shape (LEVELS, n)
        Probability of each level for each draft.
    below : ndarray, shape (n,)
        Probability that each draft is below this half.
    """
    late, density = _race()
    with np.errstate(under="ignore"):
        return density @ _of_others(masses.T @ late + below[:, None]).T


@cache
def _race() -> tuple[FloatArray, FloatArray]:
    """Return, for each level and node, P(later than the node) and density times step of the rule.

    Both have the shape (LEVELS, nodes).  Nodes are logarithms of times.
    """
    nodes = np.arange(EARLIEST, LATEST + 0.5 * NODE_STEP, NODE_STEP)
    with np.errstate(under="ignore"):
        arrivals = np.exp(np.arange(LEVELS)[:, None] + nodes)
        late = np.exp(-arrivals)
        return late, NODE_STEP * arrivals * late


def _of_others(factors: FloatArray) -> FloatArray:
    """Return for each row the product of all other rows, without division."""
    result = np.ones_like(factors)
    for rows, products in (factors, result), (factors[::-1], result[::-1]):
        products[1:] *= np.cumprod(rows[:-1], axis=0)
    return result


def _improved(target: FloatArray, by_token: FloatArray, subset: Mask) -> Mask:
    """Move tokens into or out of H while that improves the bound.

    A token improves the bound, to first order, if p_i < sum_j q_j(i) prod_{k != j} q_k(H).
    From the set of all tokens, each step only removes tokens.
    """
    bound, inside = _bound(target, by_token, subset)
    while True:
        moved = target < by_token @ _of_others(inside)
        lower, inside = _bound(target, by_token, moved)
        if lower >= bound - ROUNDING:
            return subset
        bound, subset = lower, moved


def _bound(target: FloatArray, by_token: FloatArray, subset: Mask) -> tuple[float, FloatArray]:
    """Return p(H) - prod_j q_j(H), and q_j(H) for each draft j."""
    inside = subset.astype(float) @ by_token
    return float(target[subset].sum() - inside.prod()), inside


@compiled
def _move(
    target: FloatArray, by_token: FloatArray, chances: FloatArray, positions: FloatArray
) -> None:
    """Move each token to the position in its half where its probability is nearest to its target.

    Parameters
    ----------
    target : ndarray, shape (m,)
    by_token : ndarray, shape (m, n)
    chances : ndarray, shape (LEVELS, n)
        Chances at each level, which do not decrease.
    positions : ndarray, shape (m,)
        Positions within the half, which the function replaces.
    """
    for i in range(positions.size):
        level = min(int(positions[i]), LEVELS - 2)
        here, above = 0.0, 0.0
        for j in range(by_token.shape[1]):
            here += by_token[i, j] * chances[level, j]
            above += by_token[i, j] * chances[level + 1, j]
        while here > target[i] and level > 0:
            level -= 1
            above, here = here, 0.0
            for j in range(by_token.shape[1]):
                here += by_token[i, j] * chances[level, j]
        while above < target[i] and level < LEVELS - 2:
            level += 1
            here, above = above, 0.0
            for j in range(by_token.shape[1]):
                above += by_token[i, j] * chances[level + 1, j]
        part = 0.0
        if above <= target[i]:
            part = 1.0
        elif here < target[i]:
            part = (target[i] - here) / (above - here)
        positions[i] = level + part
