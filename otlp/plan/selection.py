"""Plan that selects one drafted token and verifies it by single-draft speculative sampling."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp.checks import check_generator, own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf, stored, sum_by
from otlp.drafts import TokenSets
from otlp.numerics.compiled import compiled
from otlp.plan.plan import Marginals, Plan, normalised_or
from otlp.problem import Problem

BLOCK = 2**16
"""Number of tuples verified together."""

LEAST = 5e-324
"""Least positive number, a divisor instead of zero: zero divided by it is zero."""


class SelectionPlan(Plan):
    """Select a drafted token i, accept it with probability min(1, p_i / y_i), else replace it.

    y is the distribution of the selected token.  The replacement follows (p - y)^+, normalised, so
    the output is p for any y, and the acceptance is sum_i min(p_i, y_i).

    Parameters
    ----------
    problem : Problem
    selection_distribution : ndarray, shape (V,)
        The distribution y of the selected token.

    Examples
    --------
    >>> import otlp
    >>> from otlp.plan import SelectionPlan
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> plan = otlp.solve(problem, "martingale").plan
    >>> isinstance(plan, SelectionPlan)
    True
    >>> plan.realised_selection_distribution().round(6).tolist()   # y
    [0.25, 0.45, 0.3]
    >>> plan.accept.round(6).tolist()                     # min(1, p / y)
    [0.4, 1.0, 1.0]
    """

    def __init__(self, problem: Problem, selection_distribution: FloatArray) -> None:
        super().__init__(problem)
        self.selection_distribution = selection_distribution

    def __getstate__(self) -> dict[str, object]:
        """Return the state for pickling, without cached properties."""
        return stored(self)

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Draw the selected token given a valid drafted tuple."""
        return int(self.select_many(draft_tokens[None], rng)[0])

    @abstractmethod
    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the selected tokens of valid tuples, shape (m, n) -> (m,)."""

    @abstractmethod
    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the distribution of the selected token given a valid tuple: tokens and masses."""

    @abstractmethod
    def realised_selection_distribution(self) -> FloatArray:
        """Return the distribution of the token that the selection actually produces, shape (V,).

        Computed from the numbers that `select_many` uses, not from `selection_distribution`.
        """

    @property
    def accept(self) -> FloatArray:
        """Probability of accepting token i once selected, shape (V,); 0 if p_i and y_i are 0."""
        return self._single_draft[0]

    @property
    def residual(self) -> FloatArray:
        """Distribution of the replacement, shape (V,)."""
        return self._single_draft[1]

    @cached_property
    def _single_draft(self) -> tuple[FloatArray, FloatArray]:
        target = self.problem.target
        accept, left = acceptance_and_residual(target, self.selection_distribution)
        # Without mass left, a replacement is drawn with probability zero up to rounding.
        return accept, normalised_or(left, target)

    @cached_property
    def _residual_cumulative(self) -> FloatArray:
        return np.cumsum(self.residual)

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the distribution of the verified token; see `Plan.conditional`."""
        tokens, masses = self.selection(self._check(draft_tokens))
        accepted = masses * self.accept[tokens]
        result = self.residual * max(0.0, 1.0 - float(accepted.sum()))
        result[tokens] += accepted
        return result

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token given the drafted tuple; see `Plan.sample`."""
        check_generator(rng)
        token = self.select(self._check(draft_tokens), rng)
        if rng.random() < self.accept[token]:
            return token
        return int(invert_cdf(self._residual_cumulative, rng.random()))

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`; works in blocks to limit the memory for random numbers."""
        verified = np.empty(len(tokens), dtype=np.int64)
        for begin in range(0, len(tokens), BLOCK):
            block = verified[begin : begin + BLOCK]
            block[:] = self.select_many(tokens[begin : begin + BLOCK], rng)
            rejected = np.flatnonzero(rng.random(block.size) >= self.accept[block])
            block[rejected] = invert_cdf(self._residual_cumulative, rng.random(rejected.size))
        return verified

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution of the realised selection; O(V)."""
        accept, residual = self._single_draft
        accepted = self.realised_selection_distribution() * accept
        output = residual * max(0.0, 1.0 - float(accepted.sum()))
        output += accepted
        return Marginals(accepted, output, "closed form")

    def _with_drafted_replacements(self, sets: TokenSets, rejected: FloatArray) -> Marginals:
        """Return marginals in which replacements that were drafted count as accepted.

        `rejected` is the probability of a replacement given each set of drafted tokens.
        """
        selected = SelectionPlan.marginals(self)
        mass = rejected * sets.mass
        drafted = sum_by(sets.members, mass[sets.rows], self.problem.vocab_size)
        accepted = selected.acceptance + self.residual * drafted
        return Marginals(accepted, selected.output, "enumerated")


@compiled
def acceptance_and_residual(target: FloatArray, law: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return acceptance probability min(1, p / y), 0 if both are 0, and residual (p - y)^+."""
    accept, left = np.empty(target.size), np.empty(target.size)
    for i in range(target.size):
        p, y = target[i], law[i]
        accept[i] = p / max(max(p, y), LEAST)
        left[i] = max(p - y, 0.0)
    return accept, left
