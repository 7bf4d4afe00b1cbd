"""A plan in two systems: one for the tuples that stay in H*, one for those that leave it.

By complementary slackness (Global Resolution, Theorem 5.1) a tuple inside H* accepts tokens of
H* only, and one that leaves it accepts tokens outside H* only.  Each system has a law of its own
to put out, the two laws add up to the target, and a slice needs its own system alone.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import TokenSets
from otlp.plan.plan import Marginals, Plan, residual_distribution
from otlp.problem import Problem

__all__ = ["FlowSystem", "LosslessSystem", "SlacknessPlan"]


class SlacknessPlan(Plan):
    """Join the outer and the inner system.

    Parameters
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*.
    outer, inner : Plan
        Of the tuples that leave H*, and of those inside it: each answers for its own tuples only,
        and its marginals sum to their probability.
    """

    def __init__(self, problem: Problem, subset: Mask, outer: Plan, inner: Plan) -> None:
        super().__init__(problem)
        self.subset, self.outer, self.inner = subset, outer, inner

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


class LosslessSystem(Plan):
    """Accept drafted tokens by given shares, scaled so that the output is exactly `wanted`.

    A token that would get more than `wanted` has its shares scaled down, and what is left of
    `wanted` replaces rejected drafts; so the output does not depend on how good the shares are.

    Tokens may share a label (a lump): a label's share goes to one of its drafts at random.

    Parameters
    ----------
    problem : Problem
        Its target is the replacement of last resort, where `wanted` is zero throughout by
        rounding.
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
    """

    def __init__(
        self,
        problem: Problem,
        wanted: FloatArray,
        mass: float,
        given: FloatArray,
        labels: IntArray,
        draft: FloatArray,
    ) -> None:
        super().__init__(problem)
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
        self.kept = raw * self.accept
        self.residual = residual_distribution(wanted, self.kept)
        if self.residual is wanted:
            self.residual = problem.target

    @abstractmethod
    def shares(self, labels: IntArray) -> FloatArray:
        """Shares of the distinct labels that a tuple shows, ascending."""

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan for a tuple of this system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
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
        rejected = max(0.0, self.mass - float(self.kept.sum()))
        output = self.kept + rejected * self.residual
        lucky = self.lucky()
        if lucky is None:
            return Marginals(self.kept, output, "closed form, lucky replacements left out")
        return Marginals(self.kept + lucky, output, "closed form")

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
    problem, wanted, mass
        As in `LosslessSystem`.
    sets : TokenSets
        Sets of tokens, with the mass of the tuples that show just these.
    flow : ndarray, shape (nnz,)
        S(i, set); negative entries and what exceeds a set's mass are cut off.
    """

    def __init__(
        self, problem: Problem, wanted: FloatArray, mass: float, sets: TokenSets, flow: FloatArray
    ) -> None:
        available = sets.mass[sets.rows]
        share = np.clip(flow, 0.0, available) / available
        share /= np.maximum(sum_by(sets.rows, share, len(sets)), 1.0)[sets.rows]
        labels = np.full(wanted.size, -1, dtype=np.int64)
        labels[sets.members] = sets.members
        given = sum_by(sets.members, share * available, wanted.size)
        super().__init__(problem, wanted, mass, given, labels, np.ones(wanted.size))
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
