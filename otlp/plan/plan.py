"""What every plan answers: slices, samples, and its own exact marginals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, check_generator, invert_cdf
from otlp.drafts import DraftTuples
from otlp.drafts.token_sets import MEMORY_LIMIT, check_memory
from otlp.problem import Problem

__all__ = ["Marginals", "Plan", "enumerated_marginals", "residual_distribution"]


MISS = 1e-6
"""Probability that the interval of an estimated acceptance misses the true one, at most."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """What a plan does on average over the drafts, computed from the plan alone.

    Attributes
    ----------
    acceptance : ndarray, shape (V,)
        Probability that the verified token is i and was drafted.
    output : ndarray, shape (V,)
        Law of the verified token; the target, if the plan is lossless.
    method : str
        How both were obtained, in words ("enumerated", "closed form", "bound").
    slack : float
        What the L1 error of `output` may be larger by than it shows, if `method` is a bound.
    interval : tuple of float, or None
        Where the acceptance is estimated: ends of an interval that misses its true sum with
        probability `MISS` at most.  None where it is no estimate.
    """

    acceptance: FloatArray
    output: FloatArray
    method: str
    slack: float = 0.0
    interval: tuple[float, float] | None = None


class Plan(ABC):
    """A verification rule: the law pi(. | drafted tuple) of the verified token.

    Attributes
    ----------
    problem : Problem
        The problem that the plan is for.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan: the law of the verified token given the drafted tuple.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (n,)

        Returns
        -------
        ndarray, shape (V,)
            Nonnegative, sums to one.

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError
            If the tuple cannot be drafted.
        """

    def marginals(self) -> Marginals:
        """Acceptance and output law of this plan, from the plan's own numbers.

        Enumerated slice by slice here, O(m V) for m tuples; plans that know better override it.

        Raises
        ------
        SizeLimitError
            If the tuples are too many to list.
        """
        tuples = self.problem.drafts.enumerate_tuples()
        needed = 8.0 * tuples.mass.size * self.problem.vocab_size
        check_memory("the table of slices", needed, MEMORY_LIMIT)
        return enumerated_marginals(tuples, np.array([self.conditional(t) for t in tuples.tokens]))

    def finished(self) -> Plan:
        """Return this plan with nothing left to be solved when a tuple needs it.

        Raises
        ------
        SolveError
            If that finds no plan, which would else be found out at some tuple.
        """
        return self

    @property
    def acceptance_vector(self) -> FloatArray:
        """Probability that the verified token is i and was drafted, shape (V,)."""
        return self.marginals().acceptance

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token given the drafted tuple."""
        check_generator(rng)
        return int(invert_cdf(np.cumsum(self.conditional(draft_tokens)), rng.random()))

    def accepted(self, token: int, draft_tokens: npt.ArrayLike) -> bool:
        """Whether the verified token is one of the drafted ones."""
        return bool(np.any(np.asarray(draft_tokens) == token))

    def _check(self, draft_tokens: npt.ArrayLike) -> IntArray:
        return self.problem.check_draft_tokens(draft_tokens)


def enumerated_marginals(tuples: DraftTuples, slices: FloatArray) -> Marginals:
    """Sum over all tuples.

    Parameters
    ----------
    tuples : DraftTuples
    slices : ndarray, shape (m, V)
        The slice of each tuple.

    Returns
    -------
    Marginals
        The slack is what negative entries and sums other than one amount to: what is sampled
        then follows no slice.  O(m V).
    """
    joint = slices * tuples.mass[:, None]
    drafted = np.zeros(joint.shape, dtype=bool)
    drafted[np.arange(len(joint))[:, None], tuples.tokens] = True
    accepted = np.where(drafted, joint, 0.0)
    defects = np.abs(slices.sum(axis=1) - 1.0) - 2.0 * np.minimum(slices, 0.0).sum(axis=1)
    slack = float(tuples.mass @ defects)
    return Marginals(accepted.sum(axis=0), joint.sum(axis=0), "enumerated", slack)


def residual_distribution(target: FloatArray, acceptance: FloatArray | float) -> FloatArray:
    """Law of the token that replaces a rejected draft: what acceptance leaves of the target.

    Parameters
    ----------
    target, acceptance : ndarray, shape (V,)
        The target p and the accepted mass of each token, at most p.

    Returns
    -------
    ndarray, shape (V,)
        (p - acceptance)^+ normalised; p itself where nothing is left, since it is then drawn
        from with probability zero but for rounding.
    """
    left = np.maximum(target - acceptance, 0.0)
    total = float(left.sum())
    if total <= 0.0:
        return target
    left /= total
    return left
