"""Greedy multi-path block verification: the highest of K paths in a lexicographic order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.decode.verification.path_selection import PathSelection
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled

__all__ = ["GreedyMultipath"]


@dataclass(frozen=True)
class _Interval:
    """A prefix and the part of the order that its paths take up.

    Attributes
    ----------
    paths : int
        How many paths are drafted.
    low, width : float
        The draft's mass of all paths below those of this prefix, and of this prefix.
    rank : tuple
        (p/q, token) of each token: comparing two gives the order of the paths.
    """

    paths: int
    low: float
    width: float
    rank: tuple[tuple[float, int], ...]


@compiled(fastmath={"reassoc", "contract"}, error_model="numpy")
def _mass_below(p: FloatArray, q: FloatArray, token: int) -> float:
    """Draft mass of the tokens that stand below one, by p/q and then by id."""
    level = p[token] / q[token]
    total = 0.0
    for x in range(q.size):
        if p[x] / q[x] < level:  # never where q is 0
            total += q[x]
    for x in range(token):
        if q[x] > 0.0 and p[x] / q[x] == level:
            total += q[x]
    return total


@compiled
def _power_sum(low: float, high: float, paths: int) -> float:
    """(high^K - low^K) / (high - low)."""
    total, power = 1.0, 1.0
    for _ in range(paths - 1):
        power *= high
        total = total * low + power
    return total


@compiled
def _ratio(low: float, width: float, below: float, q: float, paths: int) -> float:
    """Gamma(child) / (Gamma(parent) q) for a child that starts `below` inside the parent.

    Gamma is high^K - low^K (Eq. 25), and (high^K - low^K) / (high - low) is a sum of powers
    without cancellation; measured in units of the parent's upper end nothing underflows.
    """
    low, width = low / (low + width), width / (low + width)
    a = low + width * below
    return _power_sum(a, a + width * q, paths) / _power_sum(low, 1.0, paths)


@compiled
def _skewed(
    q: FloatArray, drafted: IntArray, order: IntArray, low: float, width: float, paths: int
) -> FloatArray:
    """Distribution q r at all tokens; `order` has the places of the drafted ones, by p/q."""
    low, width = low / (low + width), width / (low + width)
    scale = 1.0 / _power_sum(low, 1.0, paths)
    skewed = np.zeros(q.size)
    below = 0.0
    for place in order:
        token = drafted[place]
        own = q[token]
        a = low + width * below
        skewed[token] = own * scale * _power_sum(a, a + width * own, paths)
        below += own
    return skewed


class _Consecutive:
    """Children take consecutive parts of their parent's interval, in ascending order of p/q."""

    def __init__(self, state: _Interval, p: FloatArray, q: FloatArray) -> None:
        self.state, self.p, self.q = state, p, q
        self.found: dict[int, float] = {}

    def below(self, token: int) -> float:
        if token not in self.found:
            self.found[token] = _mass_below(self.p, self.q, token)
        return self.found[token]

    def ratio(self, token: int) -> float:
        state = self.state
        below, q = self.below(token), float(self.q[token])
        return _ratio(state.low, state.width, below, q, state.paths)

    def draft_distribution(self) -> FloatArray:
        state, drafted = self.state, np.flatnonzero(self.q)
        with np.errstate(over="ignore"):
            order = ascending(self.p[drafted] / self.q[drafted])
        return _skewed(self.q, drafted, order, state.low, state.width, state.paths)

    def child(self, token: int) -> _Interval:
        state, q = self.state, float(self.q[token])
        low = state.low + state.width * self.below(token)
        with np.errstate(over="ignore"):
            rank = (*state.rank, (float(self.p[token] / self.q[token]), token))
        return _Interval(state.paths, low, state.width * q, rank)


@dataclass(frozen=True)
class GreedyMultipath(PathSelection[_Interval]):
    """Rank all paths by p/q lexicographically, select the highest of the K drafted ones.

    The distribution of the selected path is known in closed form: Gamma(prefix) = high^K - low^K,
    where low and high are the draft's masses of the paths below the prefix's, without and with
    them.

    Source: Thomas and Pal, Greedy Multi-Path Block Verification, section 5, Eqs. 25-29,
    Algorithm 1.  O(V) for each drafted token, and for each prefix that is looked at from the end
    of the selected path.
    """

    name: ClassVar[str] = "greedy-multipath"

    def root(self, paths: int) -> _Interval:
        """All of [0, 1]."""
        return _Interval(paths, 0.0, 1.0, ())

    def skew(self, state: _Interval, weight: float, p: FloatArray, q: FloatArray) -> _Consecutive:
        """Consecutive intervals; the weight plays no part."""
        return _Consecutive(state, p, q)

    def pick(self, states: Sequence[_Interval]) -> FloatArray:
        """The highest path, with certainty."""
        highest = max(range(len(states)), key=lambda k: states[k].rank)
        picked: FloatArray = np.eye(len(states))[highest]
        return picked
