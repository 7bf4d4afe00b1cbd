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
from otlp.plan.plan import Marginals, Plan, residual_law
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
    sets : TokenSets
        Sets of labels, with the mass of the tuples that show just these labels.
    share : ndarray, shape (nnz,)
        Share of each member of each set; at most 1 in all for a set.
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
        sets: TokenSets,
        share: FloatArray,
        labels: IntArray,
        draft: FloatArray,
        target: FloatArray,
    ) -> None:
        self.wanted, self.mass = wanted, mass
        self.sets, self.share, self.labels = sets, share, labels
        count = int(labels.max(initial=-1)) + 1
        self._labelled = np.flatnonzero(labels >= 0)
        own = labels[self._labelled]
        sizes = np.bincount(own, minlength=count)
        self._separate = bool((sizes <= 1).all())
        total = sum_by(own, draft[self._labelled], count)
        given = sum_by(sets.members, share * sets.mass[sets.rows], count)
        part = np.where(sizes[own] == 1, 1.0, draft[self._labelled] / total[own])
        raw = np.zeros(wanted.size)
        raw[self._labelled] = given[own] * part
        self.accept = np.divide(wanted, raw, out=np.ones(wanted.size), where=raw > wanted)
        self.accepted = raw * self.accept
        self.residual = residual_law(wanted, self.accepted)
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
        """Closed form; with separate tokens also the mass of lucky replacements. O(nnz + V)."""
        rejected = max(0.0, self.mass - float(self.accepted.sum()))
        output = self.accepted + rejected * self.residual
        if not self._separate:
            return Marginals(self.accepted, output, "closed form, lucky replacements left out")
        accept = np.zeros(int(self.labels.max(initial=-1)) + 1)
        accept[self.labels[self._labelled]] = self.accept[self._labelled]
        taken = sum_by(self.sets.rows, self.share * accept[self.sets.members], len(self.sets))
        refused = self.sets.mass * np.maximum(1.0 - taken, 0.0)
        shown = sum_by(self.sets.members, refused[self.sets.rows], accept.size)
        lucky = np.zeros(self.wanted.size)
        lucky[self._labelled] = shown[self.labels[self._labelled]] * self.residual[self._labelled]
        return Marginals(self.accepted + lucky, output, "closed form")


class FlowSystem(LosslessSystem):
    """Shares listed set by set, from a flow.

    Parameters
    ----------
    wanted, mass, sets, target
        As in `LosslessSystem`; labels are the tokens themselves.
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
        super().__init__(wanted, mass, sets, share, labels, np.ones(wanted.size), target)

    def shares(self, labels: IntArray) -> FloatArray:
        """Look the set up; a set that is not listed, of a mass that underflows, has no shares."""
        found = self.sets.find(labels)
        if found < 0:
            return np.zeros(labels.size)
        return self.share[self.sets.offsets[found] : self.sets.offsets[found + 1]]


class SoftmaxSystem(LosslessSystem):
    """Shares by a softmax over one variable a label (Global Resolution, Eq. 14 and 17).

    Parameters
    ----------
    wanted, mass, sets, labels, draft, target
        As in `LosslessSystem`.
    alpha : ndarray, shape (G,)
        The variables.
    slack : float
        0 for the outer system, 1 for the inner.
    """

    def __init__(
        self,
        wanted: FloatArray,
        mass: float,
        sets: TokenSets,
        labels: IntArray,
        draft: FloatArray,
        target: FloatArray,
        alpha: FloatArray,
        slack: float,
    ) -> None:
        share = softmax_by_set(sets, alpha, slack)
        super().__init__(wanted, mass, sets, share, labels, draft, target)
        self.alpha, self.slack = alpha, slack

    def shares(self, labels: IntArray) -> FloatArray:
        """Softmax over the labels of a tuple."""
        return softmax_shares(self.alpha[labels], self.slack)


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
