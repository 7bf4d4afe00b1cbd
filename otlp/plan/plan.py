"""Base class of plans: conditional distributions, samples, and exact marginals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from otlp.checks import MEMORY_LIMIT, check_generator, check_memory, own_float_errors, whole_number
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import DraftTuples
from otlp.numerics.equal_rows import equal_rows
from otlp.problem import Problem
from otlp.showing.html import html_table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MISS = 1e-6
"""Maximum probability that the interval of an estimated acceptance misses the true acceptance."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """Averages of a plan over the drafts, computed from the plan only.

    Attributes
    ----------
    acceptance : ndarray, shape (V,)
        Probability that the verified token is i and was drafted.
    output : ndarray, shape (V,)
        Distribution of the verified token; equal to the target if the plan is lossless.
    method : str
        Method of computation ("enumerated", "closed form", "bound").
    slack : float
        Maximum amount by which the L1 error of `output` is underestimated, if `method` is a bound.
    interval : tuple of float, or None
        Interval for the total acceptance if the acceptance is estimated; misses the true value with
        probability at most `MISS`.  None if the acceptance is not an estimate.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> marginals = otlp.solve(problem).plan.marginals()
    >>> marginals.acceptance.round(6).tolist(), marginals.output.round(6).tolist()
    ([0.1, 0.45, 0.3], [0.1, 0.6, 0.3])
    """

    acceptance: FloatArray
    output: FloatArray
    method: str
    slack: float = 0.0
    interval: tuple[float, float] | None = None


class Plan(ABC):
    """A verification rule: the distribution pi(. | drafted tuple) of the verified token.

    Attributes
    ----------
    problem : Problem
        The problem that the plan solves.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> plan = otlp.solve(problem).plan
    >>> plan.conditional([0, 2]).round(6).tolist()
    [0.0, 0.0, 1.0]
    >>> rng = np.random.default_rng(0)
    >>> drafted = problem.drafts.sample(rng, 5)
    >>> plan.sample_many(drafted, rng).shape
    (5,)
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __repr__(self) -> str:
        """Return the class of the plan and its problem."""
        return f"<{type(self).__name__} of {self.problem!r}>"

    def _repr_html_(self) -> str:
        drafts = {"V": f"{self.problem.vocab_size:,}", "drafts": repr(self.problem.drafts)}
        methods = {"methods": "conditional, sample, sample_many, accepted, marginals, table"}
        return html_table(type(self).__name__, drafts | methods)

    @abstractmethod
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the distribution of the verified token given the drafted tuple.

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

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution of this plan, from the plan's own numbers.

        The default enumerates a `table`, O(m V) for m tuples; plans with a faster method override
        it.

        Raises
        ------
        SizeLimitError
            If there are too many tuples to list.
        """
        return enumerated_marginals(*self.table())

    def table(self, memory_limit: int = MEMORY_LIMIT) -> tuple[DraftTuples, FloatArray]:
        """Return all tuples, and the conditional distribution of each.

        Parameters
        ----------
        memory_limit : int
            Maximum size of the list of tuples, and of the array, in bytes.

        Returns
        -------
        tuples : DraftTuples
            The m tuples of positive probability, ``tuples.tokens`` of shape (m, n), and their
            probabilities ``tuples.mass``, shape (m,).
        conditionals : ndarray, shape (m, V)
            Row j is ``conditional(tuples.tokens[j])``, so ``tuples.mass @ conditionals`` is the
            output distribution, and ``tuples.mass[:, None] * conditionals`` the joint
            distribution, pi of Eq. 1 of Global Resolution.

        Raises
        ------
        SizeLimitError
            If either would exceed the limit; `sparse_table` may then still fit.

        Examples
        --------
        >>> import otlp
        >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=1))
        >>> tuples, conditionals = otlp.solve(problem).plan.table()
        >>> tuples.tokens.tolist(), conditionals.round(6).tolist()
        ([[0], [1], [2]], [[0.2, 0.6, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        """
        tuples = self.problem.drafts.enumerate_tuples(memory_limit)
        shape = (tuples.mass.size, self.problem.vocab_size)
        what = f"the table of {shape[0]:,} tuples by {shape[1]:,} tokens"
        check_memory(what, 8.0 * shape[0] * shape[1], memory_limit)
        conditionals = np.empty(shape)
        for j, row in enumerate(tuples.tokens):
            conditionals[j] = self.conditional(row)
        return tuples, conditionals

    def sparse_table(self, memory_limit: int = MEMORY_LIMIT) -> tuple[DraftTuples, csr_array]:
        """Return the `table` of the plan with a sparse array of the positive probabilities.

        Parameters
        ----------
        memory_limit : int
            Maximum size of the list of tuples, and of the array, in bytes.

        Returns
        -------
        tuples : DraftTuples
        conditionals : scipy.sparse.csr_array, shape (m, V)

        Raises
        ------
        SizeLimitError
            If either exceeds the limit; the array needs 12 bytes per positive probability.
        """
        from scipy.sparse import csr_array

        tuples = self.problem.drafts.enumerate_tuples(memory_limit)
        shape = (tuples.mass.size, self.problem.vocab_size)
        what = f"the sparse table of {shape[0]:,} tuples by {shape[1]:,} tokens"
        tokens, values, ends = [], [], [0]
        for row in tuples.tokens:
            law = self.conditional(row)
            tokens.append(np.flatnonzero(law).astype(np.int32))
            values.append(law[tokens[-1]])
            ends.append(ends[-1] + tokens[-1].size)
            check_memory(what, 12.0 * ends[-1], memory_limit)
        arrays = (np.concatenate(values), np.concatenate(tokens), np.array(ends))
        return tuples, csr_array(arrays, shape=shape)

    def finished(self) -> Plan:
        """Return this plan with everything solved that would be solved on demand for a tuple.

        Raises
        ------
        SolveError
            If no plan is found; without this call the error would occur at some tuple.
        """
        return self

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token given the drafted tuple."""
        check_generator(rng)
        return int(invert_cdf(np.cumsum(self.conditional(draft_tokens)), rng.random()))

    def sample_many(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> IntArray:
        """Draw the verified tokens of many drafted tuples, each with the law of `sample`.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (m, n)
            One drafted tuple per row, such as ``drafts.sample(rng, m)``; m may be 0.
        rng : numpy.random.Generator
            Random generator; its numbers are used in a different order than in m calls of `sample`.

        Returns
        -------
        ndarray, shape (m,), int64
            Independent given the rows; row j follows ``conditional(draft_tokens[j])``.

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError
            As in `sample`, for the first row that cannot be drafted, before any number is drawn.

        Notes
        -----
        The default computes one `conditional` and one running sum for each distinct tuple, and
        needs O(log V) for each row; plans with a faster method override `_draw`.  Memory is a few
        times that of the rows.

        Examples
        --------
        >>> import numpy as np, otlp
        >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
        >>> rng = np.random.default_rng(0)
        >>> drafted = problem.drafts.sample(rng, 100_000)
        >>> verified = otlp.solve(problem).plan.sample_many(drafted, rng)
        >>> (np.bincount(verified) / 100_000).round(2).tolist()
        [0.1, 0.6, 0.3]
        """
        check_generator(rng)
        return self._draw(self.problem.check_draft_tuples(draft_tokens), rng)

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the verified tokens of valid tuples, shape (m, n) -> (m,)."""
        verified = np.empty(len(tokens), dtype=np.int64)
        for row, places in equal_rows(tokens):
            cumulative = np.cumsum(self.conditional(row))
            verified[places] = invert_cdf(cumulative, rng.random(places.size))
        return verified

    def accepted(self, token: int, draft_tokens: npt.ArrayLike) -> bool:
        """Return whether the verified token is one of the drafted tokens."""
        return whole_number(token, "token", 0) in self._check(draft_tokens).tolist()

    def _check(self, draft_tokens: npt.ArrayLike) -> IntArray:
        return self.problem.check_draft_tokens(draft_tokens)


def enumerated_marginals(tuples: DraftTuples, conditionals: FloatArray) -> Marginals:
    """Return marginals from the conditionals of all tuples.

    Parameters
    ----------
    tuples : DraftTuples
    conditionals : ndarray, shape (m, V)
        The conditional of each tuple.

    Returns
    -------
    Marginals
        The slack is the total mass of negative entries and of sums different from one; samples then
        do not follow the conditionals.  O(m V).
    """
    joint = conditionals * tuples.mass[:, None]
    drafted = np.zeros(joint.shape, dtype=bool)
    drafted[np.arange(len(joint))[:, None], tuples.tokens] = True
    accepted = np.where(drafted, joint, 0.0)
    negative = np.minimum(conditionals, 0.0).sum(axis=1)
    defects = np.abs(conditionals.sum(axis=1) - 1.0) - 2.0 * negative
    slack = float(tuples.mass @ defects)
    return Marginals(accepted.sum(axis=0), joint.sum(axis=0), "enumerated", slack)


def first_accepted(
    tokens: IntArray, coins: FloatArray, residual: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Draw the first accepted token of each tuple, or a replacement if no token is accepted.

    Parameters
    ----------
    tokens, coins : ndarray, shape (m, n)
        The drafted tokens, and the probability that each is accepted if all earlier ones are not.
    residual : ndarray, shape (V,)
        The distribution of the replacement.

    Returns
    -------
    ndarray, shape (m,), int64
    """
    heads = rng.random(tokens.shape) < coins
    verified: IntArray = tokens[np.arange(len(tokens)), heads.argmax(axis=1)]
    rejected = np.flatnonzero(~heads.any(axis=1))
    verified[rejected] = invert_cdf(np.cumsum(residual), rng.random(rejected.size))
    return verified


@own_float_errors
def residual_distribution(target: FloatArray, acceptance: FloatArray | float) -> FloatArray:
    """Return the distribution of the replacement of a rejected draft.

    Parameters
    ----------
    target, acceptance : ndarray, shape (V,)
        The target p and the accepted mass of each token, at most p.

    Returns
    -------
    ndarray, shape (V,)
        (p - acceptance)^+ normalised; p itself if nothing is left, which is then drawn from with
        probability zero up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.plan import residual_distribution
    >>> target, accepted = np.array([0.1, 0.6, 0.3]), np.array([0.1, 0.4, 0.2])
    >>> residual_distribution(target, accepted).round(6).tolist()
    [0.0, 0.666667, 0.333333]
    """
    return normalised_or(np.maximum(target - acceptance, 0.0), target)


def normalised_or(left: FloatArray, target: FloatArray) -> FloatArray:
    """Normalise the remaining mass in place, or return the target if there is no mass."""
    total = float(left.sum())
    if total <= 0.0:
        return target
    left /= total
    return left
