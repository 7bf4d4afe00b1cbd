"""Items of the swaps of random ranks: groups of unlikely tokens of nearly equal p/q, and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import WithoutReplacement
from otlp.drafts.without_replacement import NO_GROUPS
from otlp.numerics.ascending import by_ratio
from otlp.numerics.compiled import compiled
from otlp.numerics.ratio_bins import bin_of
from otlp.timing import loaded

RARE = 1e-300
"""Threshold below which the reciprocal of a rate or a probability may overflow."""

BITS = 7
"""Number of mantissa bits that the ratios of a group share: 128 groups per octave."""

TOLERATED = 4.0
"""If a group loses acceptance, its tokens leave if their loss is more than this multiple of the
average loss per token that is allowed."""

FEWEST_SAVED = 2**14
"""Least number of steps that all groups save; fewer are not worth the sums over the tokens."""

LAST = 64 << BITS
"""Last bin of ratios."""

FEWEST = 12
"""Least number of tokens of a group: a step of a group costs as much as one of each."""


@dataclass(frozen=True, eq=False)
class RankItems:
    """Groups and single tokens that can be drafted, by p/q ascending.

    Attributes
    ----------
    names : ndarray, shape (V,), int64
        Group of each token, V + g for group g, or the token itself.
    order : ndarray, shape (K,)
        Name of each item.
    target, draft : ndarray, shape (K,)
        Masses p and q of each item.
    drafts : WithoutReplacement
        Drafts in whose race `steps`, shape (K,), are the tokens and groups of the items.
    steps : ndarray, shape (K,)
    sums : ndarray, shape (G, TERMS)
        Power sums of the groups; see `otlp.drafts.token_groups.power_sums`.
    """

    names: IntArray
    order: IntArray
    target: FloatArray
    draft: FloatArray
    drafts: WithoutReplacement
    steps: IntArray
    sums: FloatArray

    @classmethod
    def tokens(cls, target: FloatArray, drafts: WithoutReplacement) -> RankItems:
        """Return the tokens as items; a sort of the tokens."""
        order = by_ratio(target, drafts.draft)[::-1]
        order = order[drafts.draft[order] > 0.0]
        # Rename the tokens by their rank: memory is read in order.
        drafts, ranks = drafts._renamed(order, order.size), np.arange(order.size)
        names = np.arange(target.size)
        return cls(names, order, target[order], drafts.draft, drafts, ranks, NO_GROUPS)

    @classmethod
    def groups(cls, target: FloatArray, drafts: WithoutReplacement, names: IntArray) -> RankItems:
        """Return the groups and tokens with these names; O(V), and a sort of the items."""
        size = max(int(names.max()) + 1, names.size)
        p, q = sum_by(names, target, size), sum_by(names, drafts.draft, size)
        sums = drafts._race.power_sums(names, size - names.size)
        found = np.flatnonzero(q)
        order = found[by_ratio(p[found], q[found])[::-1]]
        return cls(names, order, p[order], q[order], drafts, order, sums)

    @property
    def single(self) -> Mask:
        """Whether each item is a token, shape (K,)."""
        return self.order < self.names.size

    def selected(self, ranks: IntArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the selection probability of each item, and the laws of the groups.

        Parameters
        ----------
        ranks, shares : ndarray, shape (M,)
            Index of the item of each rank, and its share; see
            `otlp.drafts.exponential_race.ExponentialRace.chances`.

        Returns
        -------
        selected : ndarray, shape (K,)
        laws : ndarray, shape (G, TERMS)
        """
        race, n = self.drafts._race, self.drafts.n
        chances, laws = race.chances(n, self.steps[ranks], shares, self.sums)
        return sum_by(ranks, shares * chances, self.order.size), laws

    @cached_property
    def ordering(self) -> tuple[FloatArray, FloatArray]:
        """Result of `selected` for the ordering by p/q; one step for each item."""
        ranks = np.arange(self.order.size)
        return self.selected(ranks, np.ones(ranks.size))

    @cached_property
    def optimum(self) -> tuple[float, Mask, FloatArray]:
        """1 - alpha*; H*, shape (V,); optimal selection y with y/p as even as possible, (K,)."""
        delta, length, wanted = _isotonic(self.target, self.ordering[0])
        inside = np.zeros(self.names.size + len(self.sums), dtype=bool)
        inside[self.order[:length]] = True
        return delta, inside[self.names], wanted

    def opened(self, target: FloatArray, loss: float) -> IntArray:
        """Return the names if tokens leave the groups that lose acceptance.

        Within a group, y is nearly in proportion to the law of the ordering, and the ratio y/p
        differs between the tokens.  If y/p of the group is close to 1, some tokens are on the wrong
        side of 1; the tokens that differ most from the others leave.  O(V).

        Parameters
        ----------
        target : ndarray, shape (V,)
        loss : float
            Acceptance that may be lost.
        """
        groups, (marginals, laws), wanted = ~self.single, self.ordering, self.optimum[2]
        law = self.drafts._race.law(self.names, self.order, marginals, laws)
        level, mean = np.zeros((2, len(self.sums)))
        group, least = self.order[groups] - law.size, np.maximum(marginals[groups], RARE)
        level[group], mean[group] = wanted[groups] / least, self.target[groups] / least
        return _opened(target, law, self.names, level, mean, loss)


def attempts(target: FloatArray, drafts: WithoutReplacement, loss: float) -> Iterator[RankItems]:
    """Yield the items to swap: groups, if they save time, and then single tokens.

    Parameters
    ----------
    target : ndarray, shape (V,)
    drafts : WithoutReplacement
    loss : float
        Acceptance that groups may lose, approximately.
    """
    names = group_by_ratio(target, drafts.draft, drafts._race.groupable)
    if names.max() >= target.size:
        items = RankItems.groups(target, drafts, names)
        opened = items.opened(target, loss)
        if np.array_equal(names, opened):
            yield items
        elif opened.max() >= target.size:
            yield RankItems.groups(target, drafts, opened)
    yield RankItems.tokens(target, drafts)


def _isotonic(target: FloatArray, marginals: FloatArray) -> tuple[float, int, FloatArray]:
    """Return 1 - alpha*, the size of H* and y, for tokens ordered by p/q ascending.

    y/p is the antitonic regression, weighted by p, of v/p for the marginals v of the ordering:
    where v/p increases, neighbours pool their mass in proportion to p.  Of two pools, the ordering
    puts all tokens of one above all tokens of the other, and within a pool y/q increases with p/q,
    so y is a selection.
    """
    excess = np.cumsum(marginals - target)
    length = int(excess.argmax()) + 1 if excess.max(initial=0.0) > 0.0 else 0
    wanted, pooled = marginals.copy(), target > RARE
    p, v = target[pooled], marginals[pooled]
    regression = loaded("scipy.optimize").isotonic_regression
    wanted[pooled] = p * regression(v / p, weights=p, increasing=False).x
    return float(excess[length - 1]) if length else 0.0, length, wanted


@compiled
def group_by_ratio(target: FloatArray, draft: FloatArray, groupable: Mask) -> IntArray:
    """Return the names of the tokens if the groupable tokens in a bin of p/q are a group; O(V)."""
    names, count = np.arange(draft.size), np.zeros(LAST + 1, np.int64)
    for i in range(draft.size if draft.size > FEWEST_SAVED else 0):
        if groupable[i] and draft[i] > 0.0:
            group = bin_of(target[i] / draft[i], BITS, LAST)
            names[i] = draft.size + group
            count[group] += 1
    _keep_large(names, count)
    return names


@compiled
def _keep_large(names: IntArray, count: IntArray) -> None:
    """Dissolve groups of few tokens; dissolve all groups unless together they save enough steps.

    Enough steps are `FEWEST_SAVED`, and half of one step for each token.

    The groups that are left are renumbered; `count` is overwritten.
    """
    groups, saved = 0, 0
    for group in range(count.size):
        large = count[group] >= FEWEST
        saved += count[group] - FEWEST if large else 0
        count[group] = groups if large else -1
        groups += large
    least = max(FEWEST_SAVED, names.size // 2)
    for i in range(names.size):
        group = names[i] - names.size
        if group >= 0:
            kept = saved >= least and count[group] >= 0
            names[i] = names.size + count[group] if kept else i


@compiled
def _opened(
    target: FloatArray,
    law: FloatArray,
    names: IntArray,
    level: FloatArray,
    mean: FloatArray,
    loss: float,
) -> IntArray:
    """See `RankItems.opened`; `level` and `mean` have the shape (G,)."""
    size, lost, whole = law.size, np.zeros(level.size), 0.0
    for i in range(size):
        group = names[i] - size
        if group >= 0:
            side = 1.0 if level[group] >= mean[group] else -1.0
            part = max(side * (target[i] - level[group] * law[i]), 0.0)
            lost[group] += part
            whole += part
    opened, count = names.copy(), np.zeros(level.size, np.int64)
    if whole <= loss:
        return opened
    for i in range(size):
        group = names[i] - size
        if group >= 0:
            differs = abs(target[i] - mean[group] * law[i]) > TOLERATED * loss / size
            if differs and lost[group] > loss / level.size:
                opened[i] = i
            else:
                count[group] += 1
    _keep_large(opened, count)
    return opened
