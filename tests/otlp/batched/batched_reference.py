"""A plain float64 reference for the two-slice round of otlp.batched, by other methods.

A recursion over all prefixes with bisected thresholds.  Plans for i.i.d. drafts need none: their
reference is the `martingale` solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from otlp.distribution import FloatArray


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
    m0 = float((node.density * rise(start, low, paths)).sum()) / node.gain
    m1 = float((node.density * rise(high, stop, paths)).sum()) / node.gain
    at = paths * u ** (paths - 1) / node.gain
    return s0, s1, m0 / s0 if s0 > 0 else at, m1 / s1 if s1 > 0 else at


def rise(left: FloatArray, right: FloatArray, paths: int) -> FloatArray:
    """right^K - left^K, without cancellation in thin slices."""
    terms = [left**i * right ** (paths - 1 - i) for i in range(paths)]
    return (right - left) * np.sum(terms, axis=0)


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
