"""Greedy multi-path block verification: verify the highest of K paths in lexicographic order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import accept_prefix, next_weight
from otlp.decode.verification.verification import OfPaths, Outcome
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope

BLOCK = 256
"""Tokens per block, so that sums of powers fill the vector registers."""

DROPPED = 11
"""Mantissa bits of single precision that ranks omit, which saves one radix pass when sorting."""

Ranks = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PathInterval:
    """A prefix and the interval of the path order that its paths occupy.

    Attributes
    ----------
    paths : int
        Number of drafted paths.
    low, width : float
        The draft's mass of all paths before those of this prefix, and of this prefix.
    rank : tuple
        (rank, token) of each token, see `_rank`; tuples compare in the order of the paths.
    """

    paths: int
    low: float
    width: float
    rank: tuple[tuple[int, int], ...]


@compiled
def _rank(p: float, q: float) -> int:
    """Return p/q rounded to a relative precision of about 3e-4, as the bits of a float.

    Ties go by token id.  Any fixed order is lossless; this order is the paper's up to rounding, and
    needs two radix passes to sort.  Tokens with q = 0 come last.
    """
    bits = np.float32(p / q if q > 0.0 else np.inf).view(np.int32)
    return (bits >> DROPPED) << DROPPED  # type: ignore[return-value]


@compiled
def _ranks(p: FloatArray, q: FloatArray) -> Ranks:
    ranks = np.empty(q.size, np.int32)
    for x in range(q.size):
        ranks[x] = _rank(p[x], q[x])
    return ranks


# With the fastmath flag "nsz" the sums would not be vectorised.
@compiled(fastmath={"reassoc", "contract"})
def _mass_below(p: FloatArray, q: FloatArray, token: int) -> tuple[float, int]:
    """Return the draft mass of the tokens before `token` in order of rank and id, and its rank."""
    level, total = _rank(p[token], q[token]), 0.0
    for x in range(token):
        total += q[x] if _rank(p[x], q[x]) <= level else 0.0
    for x in range(token, q.size):
        total += q[x] if _rank(p[x], q[x]) < level else 0.0
    return total, level


@compiled
def _ratio(low: float, width: float, below: float, q: float, paths: int) -> float:
    """Return Gamma(child) / (Gamma(parent) q) for a child that starts `below` inside the parent.

    Gamma is high^K - low^K (Eq. 25), and (high^K - low^K) / (high - low) is a sum of powers without
    cancellation.  Scaling by the parent's upper end avoids underflow.
    """
    low, width = low / (low + width), width / (low + width)
    a = low + width * below
    return power_slope(a, a + width * q, paths) / power_slope(low, 1.0, paths)


@compiled
def _skewed(q: FloatArray, order: IntArray, low: float, width: float, paths: int) -> FloatArray:
    """Return the distribution q r at all tokens; `order` lists the tokens by p/q."""
    low, width = low / (low + width), width / (low + width)
    scale = 1.0 / power_slope(low, 1.0, paths)
    skewed = np.zeros(q.size)
    below = 0.0
    for token in order:
        skewed[token] = low + width * below
        below += q[token]
    a, b, power, total = np.empty((4, BLOCK))
    for start in range(0, q.size, BLOCK):
        stop = min(start + BLOCK, q.size)
        size = stop - start
        for i in range(size):
            a[i] = skewed[start + i]
            b[i] = a[i] + width * q[start + i]
            power[i] = total[i] = 1.0
        for _ in range(paths - 1):
            for i in range(size):
                power[i] *= b[i]
                total[i] = total[i] * a[i] + power[i]
        for i in range(size):
            skewed[start + i] = q[start + i] * scale * total[i]
    return skewed


def whole_interval(paths: int) -> PathInterval:
    """Return the interval of the empty prefix for the number of drafted paths."""
    return PathInterval(paths, 0.0, 1.0, ())


class Consecutive:
    """Children of a prefix: consecutive parts of its interval, in ascending order of p/q."""

    def __init__(self, state: PathInterval, p: FloatArray, q: FloatArray) -> None:
        self.state, self.p, self.q = state, p, q
        self.found: dict[int, tuple[float, int]] = {}

    def below(self, token: int) -> tuple[float, int]:
        """Return the draft mass of the tokens before `token`, and its rank."""
        if token not in self.found:
            self.found[token] = _mass_below(self.p, self.q, token)
        return self.found[token]

    def ratio(self, token: int) -> float:
        """Return the factor by which the selection multiplies a child's draft probability."""
        state = self.state
        below, q = self.below(token)[0], float(self.q[token])
        return _ratio(state.low, state.width, below, q, state.paths)

    def draft_distribution(self) -> FloatArray:
        """Return the next-token distribution of the selected path, shape (V,)."""
        state, order = self.state, ascending(_ranks(self.p, self.q).view(np.float32))
        return _skewed(self.q, order, state.low, state.width, state.paths)

    def child(self, token: int) -> PathInterval:
        """Return the interval of a child."""
        state, (below, level) = self.state, self.below(token)
        low, width = state.low + state.width * below, state.width * float(self.q[token])
        return PathInterval(state.paths, low, width, (*state.rank, (level, token)))


@dataclass(frozen=True)
class GreedyMultipath(OfPaths):
    """Rank all paths lexicographically by p/q and select the highest of the K drafted paths.

    The distribution of the selected path has a closed form: Gamma(prefix) = high^K - low^K, where
    low is the draft's mass of the paths ranked before the paths of the prefix, and high includes
    the paths of the prefix.

    Source: Thomas and Pal, Greedy Multi-Path Block Verification, section 5, Eqs. 25-29,
    Algorithm 1.  O(V) for each drafted token and for each prefix visited from the end of the
    selected path.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), decode.GreedyMultipath())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.4518
    """

    name = "greedy-multipath"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Compute weights downwards, select a path, accept upwards; see `Verification.verify`."""
        states = {0: whole_interval(tree.leaves.size)}
        weights = {0: 1.0}
        below: dict[int, Consecutive] = {}
        for node, children in tree.draws.items():
            p, q = targets[node], tree.distributions[node]
            below[node] = Consecutive(states[node], p, q)
            for child in set(children.tolist()):
                token = int(tree.tokens[child])
                skewed = float(q[token]) * below[node].ratio(token)
                weights[child] = next_weight(weights[node], float(p[token]), skewed)
                states[child] = below[node].child(token)
        path = tree.ancestry(max(tree.leaves.tolist(), key=lambda leaf: states[leaf].rank))
        return accept_prefix(
            path,
            [weights[node] for node in path],
            targets,
            lambda at: below[path[at]].draft_distribution(),
            chooser,
        )
