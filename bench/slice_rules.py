"""How far a rule for K i.i.d. paths is from the best, and why: slices, foresight, information.

A family of models is a product: after each prefix one of several next-token distributions, drawn
anew for each prefix.  Of a pair a rule sees what was drafted, so it is held against three optima,
each on average over the family: of the rules that know the pair (the LP), of those that see the
drafted tree, and of those whose scores look up their own path only; and beside the two-slice rule
stand rules of that last kind with more slices, or with a look one level down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy

from otlp.decode import TabularModel, random_pair
from otlp.decode.verification.tournament import Draws
from otlp.distribution import FloatArray
from otlp.numerics.score_chains import Score
from otlp.numerics.two_slice import shares

LEAST = 1e-200
"""Mass of a cell between others that is empty."""

THIN = 1e-9
"""Mass of a slice that is joined to the one below."""

Prefix = tuple[int, ...]
Option = tuple[FloatArray, FloatArray]
"""The draft's and the target's next-token distribution."""


@dataclass(frozen=True, eq=False)
class Family:
    """A product of models: what may follow each prefix of fewer than L tokens.

    Attributes
    ----------
    length : int
        L.
    options : dict from prefix to list of (ndarray, ndarray)
        The distributions q and p that may stand there, all alike likely.
    """

    length: int
    options: dict[Prefix, list[Option]]

    @property
    def pairs(self) -> list[tuple[TabularModel, TabularModel]]:
        """Every pair of models, with tables for L + 1 tokens; the last one does not matter."""
        size = self.options[()][0][0].size
        shapes = [(size,) * (t + 1) for t in range(self.length + 1)]
        found = []
        for picks in product(*self.options.values()):
            tables = [[np.full(shape, 1.0 / size) for shape in shapes] for _ in range(2)]
            for prefix, pick in zip(self.options, picks, strict=True):
                for model, distribution in zip(tables, pick, strict=True):
                    model[len(prefix)][prefix] = distribution
            found.append((TabularModel(tables[0], "draft"), TabularModel(tables[1], "target")))
        return found


def random_family(
    vocab_size: int, length: int, options: int, rng: np.random.Generator, *, noise: float = 1.0
) -> Family:
    """Make a family: one distribution at the root, and so many after each other prefix.

    Parameters
    ----------
    vocab_size, length, options : int
        V, L, and how many distributions may follow each prefix but the empty one; all their
        combinations are listed.
    rng : numpy.random.Generator
    noise : float
        As in `random_pair`, which each option is drawn as.
    """
    found: dict[Prefix, list[Option]] = {}
    for prefix in (x for t in range(length) for x in product(range(vocab_size), repeat=t)):
        count = options if prefix else 1
        pairs = [random_pair(vocab_size, 1, rng, noise=noise) for _ in range(count)]
        found[prefix] = [(draft.tables[0], target.tables[0]) for draft, target in pairs]
    return Family(length, found)


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """Law of the score of a random path through a prefix: a step density.

    Attributes
    ----------
    paths : int
        How many paths are drafted, K.
    edges : ndarray, shape (m + 1,)
        Ends of the cells, strictly ascending in [0, 1].
    masses : ndarray, shape (m,)
        Mass of each cell, nonnegative; they sum to one.
    """

    paths: int
    edges: FloatArray
    masses: FloatArray


class Node(NamedTuple):
    """A prefix as a rule on scores sees it: the score law, block's weight, and q and p."""

    prefix: Prefix
    law: ScoreLaw
    weight: float
    q: FloatArray
    p: FloatArray


class Sharing(NamedTuple):
    """How a score law is shared: its slices' edges, and the mass that each token gets of each."""

    edges: FloatArray
    kernel: FloatArray


Rule = Callable[[Node, Family], Sharing]
"""From a node, and what may stand below it, to the split of its score law."""


def _masses(law: ScoreLaw, edges: FloatArray) -> FloatArray:
    """Mass of each slice."""
    total = np.append(0.0, np.cumsum(law.masses))
    slices: FloatArray = np.diff(np.interp(edges, law.edges, total))
    return slices


def _wins(law: ScoreLaw, edges: FloatArray) -> FloatArray:
    """Wins of each slice, those of the whole law being 1: W = K u^(K-1)."""
    grid = np.union1d(law.edges, edges)
    density = law.masses / np.diff(law.edges)
    cell = np.searchsorted(law.edges, grid[:-1], side="right") - 1
    won = np.append(0.0, np.cumsum(density[cell] * np.diff(grid**law.paths)))
    slices: FloatArray = np.diff(np.interp(edges, grid, won)) / won[-1]
    return slices


def _means(law: ScoreLaw, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mass of each slice, and its wins over that."""
    whole = _masses(law, edges)
    return whole, np.divide(_wins(law, edges), whole, out=np.zeros(whole.size), where=whole > 0.0)


def _mixed(size: int, count: int) -> FloatArray:
    """Rows of a linear program: the sums of a kernel over its slices, and over its tokens."""
    return np.vstack([np.kron(np.eye(size), np.ones(count)), np.kron(np.ones(size), np.eye(count))])


def _child(law: ScoreLaw, split: Sharing, token: int) -> ScoreLaw:
    """Score law of a child."""
    grid = np.union1d(law.edges, split.edges)
    whole = _masses(law, split.edges)
    shares = np.divide(split.kernel[token], whole, out=np.zeros(whole.size), where=whole > 0.0)
    middle = 0.5 * (grid[1:] + grid[:-1])
    own = shares[np.searchsorted(split.edges, middle) - 1] * _masses(law, grid)
    return ScoreLaw(law.paths, grid, own / own.sum())


def _accepted(node: Node, split: Sharing) -> tuple[FloatArray, FloatArray]:
    """Mass of each token that is selected, and that is accepted; the node's own being 1."""
    selected = split.kernel @ _means(node.law, split.edges)[1]
    return selected, np.minimum(node.weight * node.p, selected)


def _score(law: ScoreLaw) -> Score:
    """The law as a link of a chain: in the coordinate u^K the wins of each cell are uniform."""
    held = np.flatnonzero(law.masses > 0.0)
    ends = law.edges[held[0] : held[-1] + 2]
    masses = np.maximum(law.masses[held[0] : held[-1] + 1], LEAST)
    with np.errstate(divide="ignore"):
        edges = law.paths * np.log(ends)
        left = np.stack([edges[:-1], np.log(np.append(0.0, np.cumsum(masses)[:-1]))])
    slopes = np.log(masses / np.diff(ends))[None]
    widths = np.log(np.diff(ends**law.paths))
    wins = _wins(ScoreLaw(law.paths, ends, masses), ends)
    return Score(edges, widths, wins, masses, np.array([1.0 / law.paths]), left, slopes)


def two_slices(node: Node, family: Family) -> Sharing:
    """The rule that decodes; see `TwoSlicePaths`."""
    draws = Draws(_score(node.law), 1.0, node.weight, node.p, node.q)
    first, last = node.law.edges[0], node.law.edges[-1]
    if draws.flat:
        return Sharing(np.array([first, last]), node.q[:, None])
    cell, offset, _, _, *means = draws.split
    place = np.logaddexp(draws.score.edges[cell], offset) / node.law.paths
    given = [
        shares(node.weight * p, q, *means) if q > 0.0 else (0.0, 0.0)
        for p, q in zip(node.p.tolist(), node.q.tolist(), strict=True)
    ]
    return Sharing(np.array([first, np.exp(place), last]), node.q[:, None] * np.array(given))


def _best_kernel(node: Node, edges: FloatArray) -> tuple[FloatArray, float]:
    """Kernel on given slices that accepts most at this node, and how much that is."""
    whole, means = _means(node.law, edges)
    size, count = node.q.size, whole.size
    # the accepted mass of each token, then the kernel, token by token
    most = np.hstack([np.eye(size), -np.kron(np.eye(size), means)])
    found = scipy.optimize.linprog(
        np.append(-np.ones(size), np.zeros(size * count)),
        A_ub=most,
        b_ub=np.zeros(size),
        A_eq=np.hstack([np.zeros((size + count, size)), _mixed(size, count)]),
        b_eq=np.append(node.q, whole),
        bounds=[(0.0, float(t)) for t in node.weight * node.p] + [(0.0, None)] * (size * count),
        method="highs",
    )
    return found.x[size:].reshape(size, count), -float(found.fun)


def _evenly(node: Node, edges: FloatArray, kernel: FloatArray, accepted: float) -> FloatArray:
    """Of the kernels that accept as much, the one whose tokens' laws are nearest to the node's."""
    whole, means = _means(node.law, edges)
    even = np.outer(node.q, whole)
    size, count = kernel.shape
    own, mixed = np.eye(size), _mixed(size, count)[:-1]
    right = np.append(node.q, whole)[:-1]
    wanted = node.weight * node.p

    # tokens that are never drafted get nothing, whatever a unit counts
    unit = np.where(even > 0.0, even, 1.0).ravel()

    # the kernel, then what is accepted of each token
    def distance(z: FloatArray) -> float:
        return float(np.sum((z[:-size] - even.ravel()) ** 2 / unit))

    def slope(z: FloatArray) -> FloatArray:
        return np.append(2.0 * (z[:-size] - even.ravel()) / unit, np.zeros(size))

    most = np.hstack([np.kron(own, means), -own])
    constraints = [
        {"type": "eq", "fun": lambda z: mixed @ z[:-size] - right,
         "jac": lambda z: np.hstack([mixed, np.zeros((right.size, size))])},
        {"type": "ineq", "fun": lambda z: most @ z, "jac": lambda z: most},
        {"type": "ineq", "fun": lambda z: np.array([z[-size:].sum() - accepted + 1e-9]),
         "jac": lambda z: np.append(np.zeros(size * count), np.ones(size))[None]},
    ]  # fmt: skip
    start = np.append(kernel.ravel(), np.minimum(wanted, kernel @ means))
    bounds = [(0.0, None)] * (size * count) + [(0.0, float(t)) for t in wanted]
    found = scipy.optimize.minimize(
        distance,
        start,
        jac=slope,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    better = found.x[:-size].reshape(size, count)
    broken = np.abs(mixed @ better.ravel() - right).max()
    return better if broken < 1e-7 and better.min() > -1e-9 else kernel


def _halved(law: ScoreLaw, edges: FloatArray, count: int) -> FloatArray:
    """Edges of more slices: the heaviest is halved until there are enough."""
    total = np.append(0.0, np.cumsum(law.masses))
    while edges.size <= count:
        at = int(np.argmax(_masses(law, edges)))
        low, high = np.interp(edges[at : at + 2], law.edges, total)
        edges = np.insert(edges, at + 1, np.interp(0.5 * (low + high), total, law.edges))
    return edges


def more_slices(count: int) -> Rule:
    """Cut where two slices are cut, and the heaviest in half; accept the most at this node.

    Of the ways to accept as much, the one that leaves the tokens' laws as wide as can be.
    """

    def rule(node: Node, family: Family) -> Sharing:
        edges = _halved(node.law, two_slices(node, family).edges, count)
        edges = edges[np.append(True, _masses(node.law, edges) > THIN)]
        edges[-1] = node.law.edges[-1]
        kernel, accepted = _best_kernel(node, edges)
        return Sharing(edges, _evenly(node, edges, kernel, accepted))

    return rule


def exact_last_level(node: Node, family: Family) -> Sharing:
    """Two slices, but at the last level the most that any split accepts."""
    if len(node.prefix) + 1 < family.length:
        return two_slices(node, family)
    edges = _halved(node.law, two_slices(node, family).edges, 64)
    return Sharing(edges, _best_kernel(node, edges)[0])


def more_at_the_root(node: Node, family: Family) -> Sharing:
    """Two slices, but eight at the root."""
    return two_slices(node, family) if node.prefix else more_slices(8)(node, family)


def more_at_the_end(node: Node, family: Family) -> Sharing:
    """Two slices, but eight at the last two levels."""
    early = len(node.prefix) + 2 < family.length
    return two_slices(node, family) if early else more_slices(8)(node, family)


def look_ahead(node: Node, family: Family) -> Sharing:
    """Two slices, cut where this level and the next accept most, given what may follow."""
    law, total = node.law, np.append(0.0, np.cumsum(node.law.masses))
    tried = [two_slices(node, family)]
    for part in np.arange(1, 32) / 32:
        edges = np.interp([0.0, part, 1.0], total, law.edges)
        tried.append(Sharing(edges, _two_shares(node, edges)))
    return max(tried, key=lambda split: _worth(node, split, family, two_slices, 2))


def _two_shares(node: Node, edges: FloatArray) -> FloatArray:
    """What `two_slices` gives each token of slices cut elsewhere."""
    whole, (low, high) = _means(node.law, edges)
    wanted = np.clip(node.weight * node.p, low * node.q, high * node.q)
    upper = (wanted - low * node.q) / (high - low)
    lower = node.q - upper
    if upper.sum() > whole[1]:
        upper = upper * (whole[1] / upper.sum())
    elif lower.sum() > 0.0:
        upper = node.q - lower * (whole[0] / lower.sum())
    return np.stack([node.q - upper, upper], axis=1)


RULES: dict[str, Rule] = {
    "two slices": two_slices,
    "3 slices": more_slices(3),
    "4 slices": more_slices(4),
    "8 slices": more_slices(8),
    "two slices, 8 at the root": more_at_the_root,
    "two slices, 8 at the end": more_at_the_end,
    "two slices, exact last level": exact_last_level,
    "two slices, a look one level down": look_ahead,
}
"""Rules on scores by name."""


def _worth(node: Node, split: Sharing, family: Family, rule: Rule, levels: int) -> float:
    """Mass accepted in so many levels below a node, its own selected mass being 1."""
    selected, accepted = _accepted(node, split)
    total = float(accepted.sum())
    if levels == 1 or len(node.prefix) + 1 == family.length:
        return total
    for token in np.flatnonzero(selected > 1e-15).tolist():
        prefix, law = (*node.prefix, token), _child(node.law, split, token)
        weight = float(accepted[token] / selected[token])
        options = family.options[prefix]
        for q, p in options:
            child = Node(prefix, law, weight, q, p)
            below = _worth(child, rule(child, family), family, rule, levels - 1)
            total += float(selected[token]) * below / len(options)
    return total


def rule_efficiency(family: Family, paths: int, rule: Rule) -> float:
    """Mean block efficiency of a rule on scores over a family, exact; one node at a time.

    Parameters
    ----------
    family : Family
    paths : int
        K.
    rule : callable
        One of `RULES`, or of your own.
    """
    root = ScoreLaw(paths, np.array([0.0, 1.0]), np.ones(1))
    total = 1.0
    for q, p in family.options[()]:
        node = Node((), root, 1.0, q, p)
        split = rule(node, family)
        total += _worth(node, split, family, rule, family.length) / len(family.options[()])
    return total
