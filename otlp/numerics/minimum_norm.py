"""Point of the selection polytope nearest to the target, as a mixture of priority orderings.

Any drafts define the base polytope of selections y: y(S) <= f(S) = P(some draft in S) for all S,
and y(V) = 1.  Its vertices are the priority orderings, and one pass of the scheme over an
ordering computes a vertex and f of all prefixes.  Wolfe's algorithm finds the point of least norm
|y - p|, and each of its vertices bounds the difference of sum min(p, y) to its maximum alpha*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.timing import seconds_left

STALLED = 25
"""Number of major cycles without a better bound before the search continues in the tight face."""

ROUNDING = 1e-13
"""Relative squared distance to the affine hull of the others below which a vertex is redundant."""


@dataclass(frozen=True, eq=False)
class MinimumNorm:
    """Mixture of priority orderings, and the bound on any acceptance that was found with it.

    Attributes
    ----------
    weights : ndarray, shape (R,)
        Probabilities of the orderings.
    orders : ndarray, shape (R, V), int32
        The orderings, most preferred token first.
    selection_distribution : ndarray, shape (V,)
        Distribution y of the token that the mixture selects.
    subset : ndarray of bool, shape (V,)
        H of the best bound f(V - H) + p(H), where f(S) is the largest mass that a selection can
        assign to S.
    gap : float
        The bound of H minus sum min(p, y).
    iterations : int
        Number of orderings visited.
    stopped : str
        Reason for the end: "gap", "iterations", "time", or "rounding" if no ordering improves y in
        floating point.
    """

    weights: FloatArray
    orders: npt.NDArray[np.int32]
    selection_distribution: FloatArray
    subset: Mask
    gap: float
    iterations: int
    stopped: str


def minimum_norm(
    target: FloatArray,
    mean: FloatArray,
    marginals: Callable[[IntArray], FloatArray],
    gap: float,
    max_iterations: int = 1000,
) -> MinimumNorm:
    """Maximise sum min(p, y) over the selections y that the drafts allow.

    Parameters
    ----------
    target : ndarray, shape (V,)
        The target p.
    mean : ndarray, shape (V,)
        A selection y, such as the mean draft; determines the scale of each token.
    marginals : callable
        Function from an ordering of the tokens, shape (V,), to the vertex y of that ordering, such
        as `otlp.DraftScheme.priority_marginals`.
    gap : float
        Stop once the optimum is certified within this gap.
    max_iterations : int
        Maximum number of orderings.

    Raises
    ------
    TimeoutError
        If the limit of `otlp.timing.deadline` passes before the first ordering.  Afterwards the
        limit stops the search, early enough to compute all orderings found once more.

    Notes
    -----
    P. Wolfe, "Finding the nearest point in a polytope", 1976, in the metric
    sum (y - p)^2 / (p + mean); S. Fujishige 1980 for polymatroids, and for the decomposition once
    the bound stops improving.  An iteration costs a sort, a call of `marginals`, and O(RV) for R
    orderings in the mixture.  Memory O(RV).
    """
    scale = 1.0 / np.maximum(target + mean, 1e-300)
    nothing = np.zeros(target.size, dtype=bool)
    search = _Search(target, scale, marginals, gap, max_iterations, nothing)
    best = point, parts = _wolfe(search, -target, None)
    while not search.stopped:
        point, parts = _wolfe(search, point, search.subset)
        # In a new face the search restarts from one vertex, and may stop before it improves.
        if _accepted(target, point) >= _accepted(target, best[0]):
            best = point, parts
    point, parts = best
    gap = search.bound - _accepted(target, point)
    return MinimumNorm(*_join(parts), point, search.subset, gap, search.visited, search.stopped)


def _wolfe(
    search: _Search, point: FloatArray, subset: Mask | None
) -> tuple[FloatArray, list[_Corral]]:
    """Run Wolfe's algorithm until the search stops, or until another subset's face is better.

    In the face where the bound of a subset H is tight, the tokens outside H come before the tokens
    of H.  The polytope is a product there, so each side has its own corral (Fujishige's
    decomposition), and a tie among the many tokens of one side does not slow the other side.

    Parameters
    ----------
    search : _Search
    point : ndarray, shape (V,)
        Selection whose difference from the target determines the first ordering.
    subset : ndarray of bool, shape (V,), or None
        H, or None for the whole polytope.

    Returns
    -------
    point : ndarray, shape (V,)
    parts : list of _Corral
        Mixture of each side; the whole polytope has one side.
    """
    everything = np.arange(search.target.size)
    sides = [everything] if subset is None else [everything[~subset], everything[subset]]
    parts = [_Corral(search.target[side], search.scale[side]) for side in sides]
    stalled = 0
    while not search.stopped and not (stalled >= STALLED and search.proves_another(subset)):
        before = search.bound
        difference = (point - search.target) * search.scale
        orders = [side[ascending(difference[side])] for side in sides]
        vertex = search.visit(np.concatenate(orders))
        if vertex is None:
            break
        point, progress = point.copy(), False
        for part, side, order in zip(parts, sides, orders, strict=True):
            progress |= part.add(vertex[side], order)
            point[side] = part.point
        stalled = 0 if search.bound < before else stalled + 1
        search.assess(point, progress, sum(part.size for part in parts))
    # A search that stopped before its first vertex has no mixture and accepts nothing.
    return (point if parts[0].size else np.zeros(point.size)), parts


def _accepted(target: FloatArray, point: FloatArray) -> float:
    return float(np.minimum(target, point).sum())


@dataclass
class _Search:
    """The problem, the limits, and the best bound found so far."""

    target: FloatArray
    scale: FloatArray
    marginals: Callable[[IntArray], FloatArray]
    gap: float
    max_iterations: int
    subset: Mask
    bound: float = np.inf
    visited: int = 0
    cost: float = 0.0
    stopped: str = ""

    def visit(self, order: IntArray) -> FloatArray | None:
        """Return the vertex of an ordering, or None if time is over; update the bound."""
        before = seconds_left()  # excludes compilation
        try:
            vertex = self.marginals(order)
        except TimeoutError:
            if self.visited == 0:
                raise
            self.stopped = "time"
            return None
        left = seconds_left()
        self.cost = 0.0 if left == np.inf else before - left
        value, prefix = best_prefix_of(self.target, vertex, order)
        if value < self.bound:
            self.bound, self.subset = value, np.ones(self.target.size, dtype=bool)
            self.subset[order[:prefix]] = False
        self.visited += 1
        return vertex

    def proves_another(self, subset: Mask | None) -> bool:
        """Return whether the best bound comes from a proper subset other than `subset`."""
        proper = bool(self.subset.any()) and not bool(self.subset.all())
        return proper and (subset is None or not np.array_equal(self.subset, subset))

    def assess(self, point: FloatArray, progress: bool, orderings: int) -> None:
        """Decide whether to stop at a mixture of that many orderings, and store the reason."""
        if self.bound - _accepted(self.target, point) <= self.gap:
            self.stopped = "gap"
        elif not progress:
            self.stopped = "rounding"
        # Reserve time for one more ordering, the bound, and the proof of each ordering.
        elif seconds_left() < (orderings + 3) * self.cost:
            self.stopped = "time"
        elif self.visited >= self.max_iterations:
            self.stopped = "iterations"


def _join(parts: list[_Corral]) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Combine the mixtures of the sides into one mixture of whole orderings, drawn with one number.

    Given u in [0, 1], each side uses the ordering whose interval contains u, so R_1 + R_2 - 1 joint
    orderings are enough.
    """
    shares = [np.maximum(part.weights[: part.size], 0.0) for part in parts]
    ends = [np.cumsum(share) / share.sum() for share in shares]
    cuts = np.unique(np.concatenate(ends))
    cuts = cuts[cuts <= ends[0][-1]]
    weights = np.diff(cuts, prepend=0.0)
    chosen = [np.minimum(np.searchsorted(end, cuts), end.size - 1) for end in ends]
    rows = [
        part.orders[part.slots[: part.size]][index]
        for part, index in zip(parts, chosen, strict=True)
    ]
    return weights / weights.sum(), np.concatenate(rows, axis=1)


@compiled
def best_prefix_of(target: FloatArray, vertex: FloatArray, order: IntArray) -> tuple[float, int]:
    """Return the least bound f(S) + p(H), H = V - S, over the prefixes S of an ordering; O(V).

    Returns
    -------
    value : float
    length : int
        Number of tokens of the best prefix.
    """
    outside = np.zeros(order.size + 1)
    for place in range(order.size - 1, -1, -1):
        outside[place] = outside[place + 1] + target[order[place]]
    best, length, touching = min(1.0, outside[0]), 0, 0.0
    for place in range(order.size):
        touching += vertex[order[place]]
        value = touching + outside[place + 1]
        if value < best:
            best, length = value, place + 1
    return best, length


class _Corral:
    """Wolfe's corral: active vertices, their weights, and the Cholesky factor of their products.

    Products are <v - p, w - p> in the metric; the factor is that of the products plus a constant,
    so that it exists even if the mixture passes through p.  Rows of `vertices` are reused: row
    ``slots[k]`` belongs to the k-th active ordering, and the free rows follow the active ones in
    `slots`.  The same row of `products` contains the products with the earlier active vertices.
    """

    def __init__(self, target: FloatArray, scale: FloatArray) -> None:
        self.target, self.scale = target, scale
        self.size = 0
        self.slots = np.zeros(0, dtype=np.int64)
        self.weights = np.zeros(0)
        self.products = np.zeros((0, 0))
        self.factor = np.zeros((0, 0))
        self.vertices = np.zeros((0, target.size))
        self.orders = np.zeros((0, target.size), dtype=np.int32)
        self.point = target

    def add(self, vertex: FloatArray, order: npt.NDArray[np.intp]) -> bool:
        """Run a major cycle: add a vertex and move to the nearest point; False on failure."""
        if self.size == self.slots.size:
            self._grow(max(8, 2 * self.size))
        slot = self.slots[self.size]
        self.vertices[slot], self.orders[slot] = vertex, order
        self.weights[self.size] = 0.0 if self.size else 1.0
        offset = (vertex - self.target) * self.scale
        slots = self.slots[: self.size + 1]
        products = _inner_products(self.vertices, slots, self.target, offset)
        if self.size == 0:
            self.constant = max(float(products[0]), 1e-300)
        if not _append(self.factor, self.size, products + self.constant):
            return False
        self.products[slot, slots] = products
        self.size += 1
        self._minor_cycles()
        return True

    def _minor_cycles(self) -> None:
        """Move to the least norm over the affine hull, dropping vertices whose weights vanish."""
        for _ in range(2 * self.size + 2):
            live = slice(0, self.size)
            slope = _slope(self.products, self.slots[live], self.weights)
            step = _affine_step(self.factor, self.size, slope)
            leaving, length = _boundary(self.weights, step)
            self.weights[live] += length * step
            if leaving < 0:
                break
            self._drop(leaving)
        self.point = _mix(self.vertices, self.slots[: self.size], self.weights)

    def _drop(self, leaving: int) -> None:
        _remove(self.factor, self.size, leaving)
        last = self.size - 1
        slot = self.slots[leaving]
        for array in (self.slots, self.weights):
            array[leaving:last] = array[leaving + 1 : self.size]
        self.slots[last] = slot
        self.size = last
        self.weights[:last] /= self.weights[:last].sum()

    def _grow(self, capacity: int) -> None:
        extra = capacity - self.slots.size
        self.slots = np.append(self.slots, np.arange(self.slots.size, capacity))
        self.weights = np.pad(self.weights, (0, extra))
        self.products = np.pad(self.products, ((0, extra), (0, extra)))
        self.factor = np.pad(self.factor, ((0, extra), (0, extra)))
        self.vertices = _with_rows(self.vertices, capacity)
        self.orders = _with_rows(self.orders, capacity)


def _with_rows(rows: npt.NDArray[np.generic], capacity: int) -> npt.NDArray:  # type: ignore[type-arg]
    result = np.empty((capacity, rows.shape[1]), rows.dtype)
    result[: len(rows)] = rows
    return result


# Compiled instead of BLAS: these vectors are too short for the threads of BLAS to help.
@compiled
def _mix(vertices: FloatArray, slots: IntArray, weights: FloatArray) -> FloatArray:
    result = np.zeros(vertices.shape[1])
    for k in range(slots.size):
        row, weight = vertices[slots[k]], weights[k]
        for i in range(result.size):
            result[i] += weight * row[i]
    return result


@compiled(fastmath={"reassoc", "contract"})
def _inner_products(
    vertices: FloatArray, slots: IntArray, target: FloatArray, offset: FloatArray
) -> FloatArray:
    result = np.empty(slots.size)
    for k in range(slots.size):
        row, value = vertices[slots[k]], 0.0
        for i in range(target.size):
            value += (row[i] - target[i]) * offset[i]
        result[k] = value
    return result


@compiled
def _slope(products: FloatArray, slots: IntArray, weights: FloatArray) -> FloatArray:
    """Return the products of each active vertex with the mixture; O(R^2)."""
    result = np.zeros(slots.size)
    for k in range(slots.size):
        for j in range(k + 1):
            product = products[slots[k], slots[j]]
            result[k] += product * weights[j]
            if j < k:
                result[j] += product * weights[k]
    return result


@compiled
def _append(factor: FloatArray, size: int, products: FloatArray) -> bool:
    """Add a row to the Cholesky factor; return False if the new vertex depends on the others."""
    left = products[size]
    for j in range(size):
        value = products[j]
        for k in range(j):
            value -= factor[size, k] * factor[j, k]
        factor[size, j] = value / factor[j, j]
        left -= factor[size, j] ** 2
    if left <= ROUNDING * products[size]:
        return False
    factor[size, size] = np.sqrt(left)
    return True


@compiled
def _remove(factor: FloatArray, size: int, row: int) -> None:
    """Delete a row and column of the factored matrix: shift up, then restore the triangle."""
    for i in range(row, size - 1):
        for k in range(i + 2):
            factor[i, k] = factor[i + 1, k]
    for k in range(row, size - 1):
        length = np.hypot(factor[k, k], factor[k, k + 1])
        cos, sin = factor[k, k] / length, factor[k, k + 1] / length
        for i in range(k, size - 1):
            one, two = factor[i, k], factor[i, k + 1]
            factor[i, k] = cos * one + sin * two
            factor[i, k + 1] = cos * two - sin * one


def _affine_step(factor: FloatArray, size: int, slope: FloatArray) -> FloatArray:
    """Return the step of the weights, with sum zero, to the least norm over the affine hull."""
    toward, ones = -slope, np.ones(size)
    _solve(factor, toward)
    _solve(factor, ones)
    step: FloatArray = toward - ones * (toward.sum() / ones.sum())
    return step


@compiled
def _solve(factor: FloatArray, vector: FloatArray) -> None:
    """Solve the equations of the factored matrix for one vector in place; O(R^2)."""
    for i in range(vector.size):
        for k in range(i):
            vector[i] -= factor[i, k] * vector[k]
        vector[i] /= factor[i, i]
    for i in range(vector.size - 1, -1, -1):
        vector[i] /= factor[i, i]
        for k in range(i):
            vector[k] -= factor[i, k] * vector[i]


@compiled
def _boundary(weights: FloatArray, step: FloatArray) -> tuple[int, float]:
    """Return the first weight that vanishes along the step, or -1, and the step length."""
    leaving, length = -1, 1.0
    for j in range(step.size):
        if step[j] < 0.0 and weights[j] <= -step[j] * length:
            leaving, length = j, weights[j] / -step[j]
    return leaving, length
