"""Plain float64 references for otlp.batched, written from the design pages with other methods.

The coupling inverts Psi by bisection over all of [0, 1] and integrates by tanh-sinh rules; the
two-slice round is a recursion over all prefixes with bisected thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from otlp.distribution import FloatArray


def bisect(function, wanted, low, high):
    """Where a nondecreasing vectorised function reaches `wanted`, elementwise."""
    a, b = np.full_like(wanted, low), np.full_like(wanted, high)
    for _ in range(60):
        middle = 0.5 * (a + b)
        short = function(middle) < wanted
        a, b = np.where(short, middle, a), np.where(short, b, middle)
    return b


# --- the inverse-transform coupling ---------------------------------------------------------


DEGREE = 96
NODES = np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
ANTIDERIVATIVE = np.polynomial.chebyshev.chebval(
    NODES,
    np.polynomial.chebyshev.chebint(
        np.linalg.inv(np.polynomial.chebyshev.chebvander(NODES, DEGREE)), lbnd=-1, axis=0
    ),
)


def running_integral(values):
    """From -1 to each Chebyshev point."""
    return values @ ANTIDERIVATIVE


def smooth_steps(t):
    """A map of [0, 1] onto itself, flat at its ends, and its slope."""
    slope = np.ones_like(t)
    for _ in range(2):
        slope = slope * 6.0 * t * (1.0 - t)
        t = t * t * (3.0 - 2.0 * t)
    return t, slope


class InverseTransform:
    """The coupling of the best selection law with n scores, as in exact_iid.md, section 3."""

    def __init__(self, p: FloatArray, q: FloatArray, n: int) -> None:
        self.p, self.q, self.n = p, q, n
        ratio = np.divide(p, q, out=np.full(p.size, np.inf), where=q > 0)
        order = np.argsort(ratio)
        curve = np.cumsum(q[order]) ** n - np.cumsum(np.where(q > 0, p, 0.0)[order])
        delta = max(0.0, float(curve.max()))
        low = bisect(lambda c: self._excess(c * q[:, None] - p[:, None]), np.array([delta]), 0, n)
        # the excess over C falls as C rises
        high = bisect(
            lambda c: -self._excess(p[:, None] - c * q[:, None]), np.array([-delta]), 0, n
        )
        if delta == 0.0:
            low, high = ratio[q > 0].min()[None], np.array([max(ratio[q > 0].max(), low[0])])
        self.law = q * np.clip(np.where(q > 0, ratio, n), low, np.maximum(low, high))
        self.law /= self.law.sum()
        live = q > 0
        value = np.round(np.divide(self.law, q, out=np.zeros(p.size), where=live), 13)
        self.block_ratio = np.unique(value[live])
        self.block_of = np.searchsorted(self.block_ratio, value)
        self.block_of[~live] = -1
        size = np.bincount(self.block_of[live], weights=q[live], minlength=self.block_ratio.size)
        law = np.bincount(
            self.block_of[live], weights=self.law[live], minlength=self.block_ratio.size
        )
        self.block_ratio = law / size
        self.edges = np.concatenate(([0.0], np.cumsum(size)))
        self.edges[-1] = 1.0

    @staticmethod
    def _excess(difference):
        return np.maximum(difference, 0.0).sum(axis=0)

    def block(self, x):
        return np.clip(
            np.searchsorted(self.edges, x, side="right") - 1, 0, self.block_ratio.size - 1
        )

    def splits(self):
        if self.n == 1:
            return self.edges[:-1]
        root = (self.block_ratio / self.n) ** (1.0 / (self.n - 1))
        return np.clip(root, self.edges[:-1], self.edges[1:])

    def psi(self, x, sign):
        """Integral over [0, x] of (r - W)^+ (sign 1) or (W - r)^+ (sign -1)."""
        split, n = self.splits(), self.n
        left, right = (self.edges[:-1], split) if sign > 0 else (split, self.edges[1:])
        stop = np.clip(np.asarray(x)[..., None], left, right)
        return sign * (self.block_ratio * (stop - left) - (stop**n - left**n)).sum(axis=-1)

    def partner(self, x):
        rising = x < self.splits()[self.block(x)]
        up, down = self.psi(x, 1), self.psi(x, -1)
        u = np.where(
            rising,
            bisect(lambda v: self.psi(v, -1), up, 0.0, 1.0),
            bisect(lambda v: self.psi(v, 1), down, 0.0, 1.0),
        )
        here, there = self.n * x ** (self.n - 1), self.n * u ** (self.n - 1)
        r = self.block_ratio[self.block(x)]
        gap = np.abs(there - here)
        chance = np.divide(np.abs(r - here), gap, out=np.zeros_like(x), where=gap > 0)
        return u, np.clip(chance, 0.0, 1.0)

    def slices(self, tuples) -> FloatArray:
        """One slice a tuple, shape (m, V)."""
        n, m, v = self.n, len(tuples), self.p.size
        if n == 1:
            picked = np.ones((m, 1))
        else:
            picked = self._selection(tuples)
        target, law = self.p, self.law
        accept = np.divide(target, law, out=np.ones(v), where=law > target)
        left = np.maximum(target - law, 0.0)
        left = left / left.sum() if left.sum() > 0 else target
        result = np.zeros((m, v))
        for j, tokens in enumerate(tuples):
            for place, token in enumerate(tokens):
                result[j, token] += picked[j, place] * accept[token]
            result[j] += (1.0 - result[j].sum()) * left
        return result

    def _selection(self, tuples) -> FloatArray:
        inner = np.concatenate((self.edges, self.splits()))
        images = [
            bisect(lambda v, s=s: self.psi(v, s), self.psi(inner, t), 0.0, 1.0)
            for s in (1, -1)
            for t in (1, -1)
        ]
        cuts = np.unique(np.clip(np.concatenate((inner, *images)), 0.0, 1.0))
        cuts = cuts[np.concatenate(([True], np.diff(cuts) > 1e-14))]
        size = np.diff(self.edges)
        picked = np.zeros((len(tuples), self.n))
        start = np.zeros(size.size)
        for a, b in pairwise(cuts):
            place, speed = smooth_steps(0.5 + 0.5 * NODES)
            outer = self._density(a + (b - a) * place, 0.5 * (a + b)) * speed * (b - a) / 2
            outer /= size[:, None]
            below = start[:, None] + running_integral(outer)
            for j, tokens in enumerate(tuples):
                which = self.block_of[list(tokens)]
                for k in range(self.n):
                    rest = np.prod(below[np.delete(which, k)], axis=0)
                    picked[j, k] += running_integral(outer[which[k]] * rest)[0]
            start = below[:, 0]  # the first node is the right end
        return picked

    def _density(self, x, middle):
        """Mass of each block's scores at x, all in one piece around `middle`."""
        _, chance = self.partner(x)
        own = self.block(np.array(middle))
        # the partner of the piece lies in one block; ask for it at the middle
        other = self.block(self.partner(np.array(middle))[0])
        result = np.zeros((self.block_ratio.size, *x.shape))
        result[own] += 1.0 - chance
        result[other] += chance
        return result


# --- the two-slice round --------------------------------------------------------------------


@dataclass
class Node:
    """A prefix: its score law, R, w, and Q(prefix)."""

    edges: FloatArray
    density: FloatArray
    gain: float
    weight: float


def moments(node: Node, u: float, paths: int) -> tuple[float, float, float, float]:
    """Masses and means of W / R below and above u."""
    left, right = node.edges[:-1], node.edges[1:]
    low, high = np.minimum(right, u), np.maximum(left, u)
    start, stop = np.minimum(left, u), np.maximum(right, u)
    s0 = float((node.density * (low - start)).sum())
    s1 = float((node.density * (stop - high)).sum())
    m0 = float((node.density * (low**paths - start**paths)).sum()) / node.gain
    m1 = float((node.density * (stop**paths - high**paths)).sum()) / node.gain
    at = paths * u ** (paths - 1) / node.gain
    return s0, s1, m0 / s0 if s0 > 0 else at, m1 / s1 if s1 > 0 else at


def threshold(node: Node, p: FloatArray, q: FloatArray, paths: int) -> float:
    def mass(u: float) -> float:
        _, _, m0, m1 = moments(node, u, paths)
        return float(np.minimum(np.maximum(node.weight * p, m0 * q), m1 * q).sum())

    def least(level: float) -> float:
        a, b = 0.0, 1.0
        for _ in range(100):
            middle = 0.5 * (a + b)
            a, b = (middle, b) if mass(middle) < level else (a, middle)
        return b

    first, last = least(1.0 - 1e-13), least(1.0 + 1e-13)
    return 0.5 * (first + last)


def two_slice(node: Node, p: FloatArray, q: FloatArray, paths: int):
    """Threshold u, shares lambda and ratios r of all children."""
    u = threshold(node, p, q, paths)
    s0, s1, m0, m1 = moments(node, u, paths)
    if min(m1 - m0, s0, s1) < 1e-12:
        return u, np.full(p.size, s0), np.ones(p.size)
    wanted = np.divide(node.weight * p, q, out=np.zeros(p.size), where=q > 0)
    share = np.clip((m1 - wanted) / (m1 - m0), 0.0, 1.0)
    share[q == 0] = s0
    held = float((q * share).sum())
    share = share * s0 / held if held > s0 else 1.0 - (1.0 - share) * s1 / (q * (1 - share)).sum()
    return u, share, share * m0 + (1.0 - share) * m1


def descend(node: Node, u: float, share: float, ratio: float, p: float, q: float, paths: int):
    s0, s1, _, _ = moments(node, u, paths)
    edges = np.sort(np.append(node.edges, u))
    cell = np.clip(np.searchsorted(node.edges, edges[:-1], side="right") - 1, 0, None)
    factor = np.where(edges[:-1] < u, share / s0 if s0 else 0.0, (1 - share) / s1 if s1 else 0.0)
    weight = min(1.0, node.weight * p / (q * ratio)) if ratio > 0 else 1.0
    return Node(edges, node.density[cell] * factor, node.gain * ratio, weight)


def two_slice_laws(p, q, paths: int, length: int):
    """Score laws of all prefixes of a tabular model: p[prefix], q[prefix] are laws."""
    nodes = {(): Node(np.array([0.0, 1.0]), np.ones(1), 1.0, 1.0)}
    ratios = {}
    for level in range(length):
        for prefix in [x for x in nodes if len(x) == level]:
            u, share, ratio = two_slice(nodes[prefix], p[prefix], q[prefix], paths)
            ratios[prefix] = ratio
            for x in np.flatnonzero(q[prefix] > 0):
                nodes[(*prefix, int(x))] = descend(
                    nodes[prefix], u, share[x], ratio[x], p[prefix][x], q[prefix][x], paths
                )
    return nodes, ratios


def prefixes(vocab: int, length: int):
    return [x for level in range(length) for x in product(range(vocab), repeat=level)]
