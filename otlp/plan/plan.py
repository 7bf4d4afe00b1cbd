"""What every plan answers: slices, samples, and its own exact marginals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.problem import Problem

__all__ = ["Marginals", "Plan", "residual_distribution"]


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
    """

    acceptance: FloatArray
    output: FloatArray
    method: str
    slack: float = 0.0


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

    @abstractmethod
    def marginals(self) -> Marginals:
        """Acceptance and output law of this plan, from the plan's own numbers."""

    @property
    def acceptance_vector(self) -> FloatArray:
        """Probability that the verified token is i and was drafted, shape (V,)."""
        return self.marginals().acceptance

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token given the drafted tuple."""
        return int(invert_cdf(np.cumsum(self.conditional(draft_tokens)), rng.random()))

    def accepted(self, token: int, draft_tokens: npt.ArrayLike) -> bool:
        """Whether the verified token is one of the drafted ones."""
        return bool(np.any(np.asarray(draft_tokens) == token))

    def _check(self, draft_tokens: npt.ArrayLike) -> IntArray:
        return self.problem.check_draft_tokens(draft_tokens)


def residual_distribution(target: FloatArray, acceptance: FloatArray) -> FloatArray:
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
