"""Bounds from the papers to hold results against: on the acceptance, on the error of many steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.checks import check_mask, whole_number
from otlp.drafts import IID
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.problem import Problem


def upper_bound(problem: Problem, subset: npt.ArrayLike | None = None) -> float:
    """Information-theoretic upper bound on the acceptance that one subset gives.

    A token y of the subset is accepted with probability at most p(y), and at most as often as it
    is drafted; a tuple accepts other tokens at most as often as it is drafted, and at most their
    p:

        sum over y inside of min(p(y), P(y is drafted))
        + sum over tuples of min(P(tuple), p(tokens of the tuple outside))

    Parameters
    ----------
    problem : Problem
    subset : array_like, optional
        A mask of shape (V,), or token ids; by default all tokens, which needs no tuples.

    Returns
    -------
    float
        At least the optimal acceptance.

    Raises
    ------
    SizeLimitError
        If the tuples cannot be listed.

    Notes
    -----
    Sun et al. 2023 (SpecTr), Lemma 3, Eq. 9, where p is the draft and q the target; its proof holds
    for every scheme.  O(V) for all tokens of i.i.d. drafts, else the cost of listing the tuples.
    `Problem.dual_value` gives tighter bounds.
    """
    drafts, target = problem.drafts, problem.target
    once = np.minimum(target, drafts.inclusion)
    if subset is None:
        return float(once.sum())
    inside = check_mask(subset, problem.vocab_size)
    if inside.all():
        return float(once.sum())
    tuples = drafts.enumerate_tuples()
    ordered = np.sort(tuples.tokens, axis=1)
    outside = np.where(inside, 0.0, target)[ordered]
    outside[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0.0
    others = float(np.minimum(tuples.mass, outside.sum(axis=1)).sum())
    return float(once[inside].sum()) + others


def lower_bound(problem: Problem) -> float:
    """Lower bound on the optimal acceptance: what K-SEQ reaches at least.

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.

    Returns
    -------
    float
        (1 - (1 - 1/n)^n) sum of min(p, 1 - (1 - q)^n), at least 1 - 1/e of the optimum.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.

    Notes
    -----
    Sun et al. 2023 (SpecTr), Eq. 11; at least as large as the bound of Lemma 3, which is the same
    share of the least `upper_bound` over all subsets.  O(V).
    """
    return _guaranteed(problem) * upper_bound(problem)


def multi_step_error(step_error: float, length: int) -> float:
    """L1 error of the next L tokens' distribution, if each step is off by at most `step_error`.

    Parameters
    ----------
    step_error : float
        L1 distance of each step's output from the target: 15 tau for the published plan of global
        resolution, or `Solution.marginal_error`.
    length : int
        Number of tokens L, at least 0.

    Returns
    -------
    float
        L times `step_error`, and at most 2.

    Raises
    ------
    InvalidInputError
        If the error is negative or NaN, or the length is negative.

    Notes
    -----
    Thomas and Pal, Global Resolution, Theorem R.1: steps replaced one by one add up.
    """
    if not step_error >= 0.0:
        raise InvalidInputError(f"step_error is {step_error}: it must be at least 0")
    return min(2.0, whole_number(length, "length", 0) * step_error)


def _guaranteed(problem: Problem) -> float:
    """Share of the optimum that K-SEQ reaches at least."""
    if not isinstance(problem.drafts, IID):
        raise UnsupportedProblemError(
            f"what K-SEQ guarantees is for i.i.d. drafts, not for {problem.drafts!r}: "
            "Problem.dual_value bounds the acceptance for every scheme"
        )
    return 1.0 - (1.0 - 1.0 / problem.n) ** problem.n
