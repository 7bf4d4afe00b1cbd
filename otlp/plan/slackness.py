"""A plan in two systems: one for the tuples that stay in H*, one for those that leave it.

By complementary slackness (Global Resolution, Theorem 5.1) a tuple inside H* accepts tokens of
H* only, and one that leaves it accepts tokens outside H* only.  Each system has a law of its own
to put out, the two laws add up to the target, and a slice needs its own system alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import TokenSets
from otlp.plan.plan import Marginals, Plan, residual_distribution
from otlp.problem import Problem

__all__ = [
    "FlowSystem",
    "LosslessSystem",
    "SlacknessPlan",
    "SoftmaxSystem",
    "System",
    "softmax_by_set",
    "softmax_shares",
]


class System(ABC):
    """The slices and marginals of the tuples on one side of H*."""

    @abstractmethod
    def conditional(self, tokens: IntArray) -> FloatArray:
        """Slice of the plan for a valid tuple of this system, shape (V,)."""

    @abstractmethod
    def marginals(self) -> Marginals:
        """Accepted mass and output of this system's tuples, which sum to their probability."""


class SlacknessPlan(Plan):
    """Join an outer and an inner system, each made when it is first needed.

    Parameters
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*.
    outer, inner : callable
        Return the `System` of the tuples that leave H*, and of those inside it; may raise what a
        solver raises.
    """

    def __init__(
        self,
        problem: Problem,
        subset: Mask,
        outer: Callable[[], System],
        inner: Callable[[], System],
    ) -> None:
        super().__init__(problem)
        self.subset = subset
        self._make_outer = outer
        self._make_inner = inner

    @cached_property
    def outer(self) -> System:
        """The system of the tuples that leave H*."""
        return self._make_outer()

    @cached_property
    def inner(self) -> System:
        """The system of the tuples inside H*."""
        return self._make_inner()

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan, from the tuple's own system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        system = self.inner if self.subset[tokens].all() else self.outer
        return system.conditional(tokens)

    def marginals(self) -> Marginals:
        """Sum over both systems."""
        outer, inner = self.outer.marginals(), self.inner.marginals()
        return Marginals(
            outer.acceptance + inner.acceptance,
            outer.output + inner.output,
            outer.method if inner.method == outer.method else f"{outer.method}, {inner.method}",
            outer.slack + inner.slack,
        )


class LosslessSystem(System):
    """Accept drafted tokens by given shares, scaled so that the output is exactly `wanted`.

    A token that would get more than `wanted` has its shares scaled down, and what is left of
    `wanted` replaces rejected drafts; so the output does not depend on how good the shares are.

    Tokens may share a label (a lump): a label's share goes to one of its drafts at random.

    Parameters
    ----------
    wanted : ndarray, shape (V,)
        What the system has to put out; sums to `mass`.
    mass : float
        Probability of the system's tuples.
    given : ndarray, shape (G,)
        Mass that the shares give to each label, over all tuples.
    labels : ndarray, shape (V,), int64
        Label of each token, -1 for tokens that are not accepted.
    draft : ndarray, shape (V,)
        Weights that split a label's mass among its tokens.
    target : ndarray, shape (V,)
        Replacement of last resort, where `wanted` is zero throughout by rounding.
    """

    def __init__(
        self,
        wanted: FloatArray,
        mass: float,
        given: FloatArray,
        labels: IntArray,
        draft: FloatArray,
        target: FloatArray,
    ) -> None:
        self.wanted, self.mass, self.labels = wanted, mass, labels
        tokens = np.flatnonzero(labels >= 0)
        own = labels[tokens]
        weights = sum_by(own, draft[tokens], given.size)
        raw = np.zeros(wanted.size)
        # A token by itself takes all, also where its weight is subnormal.
        alone = np.bincount(own, minlength=given.size)[own] == 1
        raw[tokens] = given[own] * np.where(alone, 1.0, draft[tokens] / weights[own])
        self.separate = bool(alone.all())
        self.accept = np.divide(wanted, raw, out=np.ones(wanted.size), where=raw > wanted)
        self.accepted = raw * self.accept
        self.residual = residual_distribution(wanted, self.accepted)
        if self.residual is wanted:
            self.residual = target

    @abstractmethod
    def shares(self, labels: IntArray) -> FloatArray:
        """Shares of the distinct labels that a tuple shows, ascending."""

    def conditional(self, tokens: IntArray) -> FloatArray:
        """Slice of the plan; see `System.conditional`."""
        labelled = tokens[self.labels[tokens] >= 0]
        shown, place, count = np.unique(
            self.labels[labelled], return_inverse=True, return_counts=True
        )
        given = self.shares(shown) / count
        accepted = np.zeros(self.wanted.size)
        np.add.at(accepted, labelled, given[place] * self.accept[labelled])
        return accepted + max(0.0, 1.0 - float(accepted.sum())) * self.residual

    def marginals(self) -> Marginals:
        """Closed form, with the mass of lucky replacements where `lucky` knows it; O(nnz + V)."""
        rejected = max(0.0, self.mass - float(self.accepted.sum()))
        output = self.accepted + rejected * self.residual
        lucky = self.lucky()
        if lucky is None:
            return Marginals(self.accepted, output, "closed form, lucky replacements left out")
        return Marginals(self.accepted + lucky, output, "closed form")

    @abstractmethod
    def lucky(self) -> FloatArray | None:
        """Probability that a replacement is token i and was drafted, shape (V,), if known."""

    def _lucky(self, sets: TokenSets, share: FloatArray) -> FloatArray:
        """The same, from the shares of every set of labels, each of one token."""
        tokens = np.flatnonzero(self.labels >= 0)
        accept = np.zeros(tokens.size and int(self.labels.max()) + 1)
        accept[self.labels[tokens]] = self.accept[tokens]
        taken = sum_by(sets.rows, share * accept[sets.members], len(sets))
        refused = sets.mass * np.maximum(1.0 - taken, 0.0)
        shown = sum_by(sets.members, refused[sets.rows], accept.size)
        lucky = np.zeros(self.wanted.size)
        lucky[tokens] = shown[self.labels[tokens]] * self.residual[tokens]
        return lucky


class FlowSystem(LosslessSystem):
    """Shares listed set by set, from a flow.

    Parameters
    ----------
    wanted, mass, target
        As in `LosslessSystem`.
    sets : TokenSets
        Sets of tokens, with the mass of the tuples that show just these.
    flow : ndarray, shape (nnz,)
        S(i, set); negative entries and what exceeds a set's mass are cut off.
    """

    def __init__(
        self,
        wanted: FloatArray,
        mass: float,
        sets: TokenSets,
        flow: FloatArray,
        target: FloatArray,
    ) -> None:
        share = np.maximum(flow, 0.0) / sets.mass[sets.rows]
        share /= np.maximum(sum_by(sets.rows, share, len(sets)), 1.0)[sets.rows]
        labels = np.full(wanted.size, -1, dtype=np.int64)
        labels[sets.members] = sets.members
        given = sum_by(sets.members, share * sets.mass[sets.rows], wanted.size)
        super().__init__(wanted, mass, given, labels, np.ones(wanted.size), target)
        self.sets, self.share = sets, share

    def shares(self, labels: IntArray) -> FloatArray:
        """Look the set up; a set that is not listed, of a mass that underflows, has no shares."""
        found = self.sets.find(labels)
        if found < 0:
            return np.zeros(labels.size)
        return self.share[self.sets.offsets[found] : self.sets.offsets[found + 1]]

    def lucky(self) -> FloatArray:
        """See `LosslessSystem.lucky`."""
        return self._lucky(self.sets, self.share)


class SoftmaxSystem(LosslessSystem):
    """Shares by a softmax over one variable a label (Global Resolution, Eq. 14 and 17).

    Parameters
    ----------
    wanted, mass, given, labels, draft, target
        As in `LosslessSystem`; `given` is what this softmax gives.
    alpha : ndarray, shape (G,)
        The variables.
    slack : float
        0 for the outer system, 1 for the inner.
    sets : TokenSets, optional
        All sets of labels, where they are few enough to be listed.
    """

    def __init__(
        self,
        wanted: FloatArray,
        mass: float,
        given: FloatArray,
        labels: IntArray,
        draft: FloatArray,
        target: FloatArray,
        alpha: FloatArray,
        slack: float,
        sets: TokenSets | None = None,
    ) -> None:
        super().__init__(wanted, mass, given, labels, draft, target)
        self.alpha, self.slack, self.sets = alpha, slack, sets

    def shares(self, labels: IntArray) -> FloatArray:
        """Softmax over the labels of a tuple."""
        return softmax_shares(self.alpha[labels], self.slack)

    def lucky(self) -> FloatArray | None:
        """Known where the sets are listed and no two tokens share a label."""
        if self.sets is None or not self.separate:
            return None
        return self._lucky(self.sets, softmax_by_set(self.sets, self.alpha, self.slack))


def softmax_shares(alpha: FloatArray, slack: float) -> FloatArray:
    """e^alpha / (slack + sum of e^alpha), shape (m,), without overflow."""
    if alpha.size == 0:
        return alpha
    peak = max(float(alpha.max()), 0.0) if slack else float(alpha.max())
    weight: FloatArray = np.exp(alpha - peak)
    weight /= weight.sum() + (slack * np.exp(-peak) if slack else 0.0)
    return weight


def softmax_by_set(sets: TokenSets, alpha: FloatArray, slack: float) -> FloatArray:
    """The same for each of many sets, shape (nnz,)."""
    if len(sets) == 0:
        return np.empty(0)
    peak = np.maximum.reduceat(alpha[sets.members], sets.offsets[:-1])
    if slack:
        peak = np.maximum(peak, 0.0)
    weight: FloatArray = np.exp(alpha[sets.members] - peak[sets.rows])
    total = sum_by(sets.rows, weight, len(sets))
    if slack:
        total += slack * np.exp(-peak)
    weight /= total[sets.rows]
    return weight
