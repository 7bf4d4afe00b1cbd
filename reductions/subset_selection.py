"""Subset selection: the optimal acceptance and its proof, without a plan."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.problem import Problem

__all__ = ["best_prefix", "subset_selection"]


def subset_selection(problem: Problem) -> tuple[float, Mask]:
    """Compute alpha* = 1 + min over H of psi(H), and the arg min (Global Resolution, Eq. 4).

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.

    Returns
    -------
    alpha : float
        The optimal acceptance.
    subset : ndarray of bool, shape (V,)
        H*: where all drafts fall inside it, even the best plan must sometimes reject.

    Raises
    ------
    UnsupportedProblemError
        For a scheme without a method of its own.

    Notes
    -----
    For i.i.d. drafts H* is a prefix of the tokens sorted by q/p descending (Hu et al. 2025,
    section 4.2; Global Resolution, section 5.1); O(V log V).
    """
    drafts = problem.drafts
    if not isinstance(drafts, IID):
        raise UnsupportedProblemError(
            f"subset selection has no method for {drafts!r}: max-flow gives the optimum and H* "
            "where its tuples can be listed"
        )
    subset = best_prefix(problem.target, drafts.draft, drafts.n)
    return problem.dual_value(subset), subset


def ratio_order(target: FloatArray, draft: FloatArray) -> IntArray:
    """Tokens with q > 0, by p/q ascending."""
    tokens = np.flatnonzero(draft)
    with np.errstate(over="ignore"):  # a subnormal q: last, as it should be
        order = np.argsort(target[tokens] / draft[tokens])
    return tokens[order].astype(np.int64)


def best_prefix(target: FloatArray, draft: FloatArray, n: int) -> Mask:
    """H* for i.i.d. drafts, a mask of shape (V,); O(V log V)."""
    order = ratio_order(target, draft)
    psi = np.cumsum(target[order]) - np.cumsum(draft[order]) ** n
    best = int(np.argmin(psi))
    subset = np.zeros(target.size, dtype=bool)
    if psi[best] < 0.0:
        subset[order[: best + 1]] = True
    return subset
