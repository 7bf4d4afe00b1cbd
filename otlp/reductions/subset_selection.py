"""Subset selection: the optimal acceptance and its proof, without a plan."""

from __future__ import annotations

import warnings

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability
from otlp.numerics.minimum_norm import minimum_norm
from otlp.numerics.sums import sum_in
from otlp.problem import Problem

CERTIFIED = 1e-6
"""A subset that is not proved to be optimal within this, or within `gap`, comes with a warning."""

ROUNDING = 1e-14
"""How far alpha* may be below one and still be one."""


def subset_selection(
    problem: Problem, gap: float = 1e-9, max_iterations: int = 300
) -> tuple[float, Mask]:
    """Compute alpha* = 1 + min over H of psi(H), and the arg min (Global Resolution, Eq. 4).

    Parameters
    ----------
    problem : Problem
    gap : float
        Accuracy of alpha for schemes without a closed form.
    max_iterations : int
        Orderings to visit at most, for schemes without a closed form.

    Returns
    -------
    alpha : float
        The optimal acceptance; never below it.
    subset : ndarray of bool, shape (V,)
        H*: where all drafts fall inside it, even the best plan must sometimes reject.

    Warns
    -----
    UserWarning
        If `max_iterations` ended the search before alpha was proved within 1e-6, or `gap`.

    Notes
    -----
    For i.i.d. drafts, and for drafts without replacement, H* is a prefix of the tokens sorted by
    p/q ascending (Hu et al. 2025, section 4.2; Global Resolution, sections 5.1 and S).  For
    greedy drafts and hubs H* is the top tokens and those of p < q~, for the distribution q~ of the
    last draft.
    `DraftScheme.best_subset` gives these; O(V) for all of them but drafts without replacement,
    which are sorted.

    For different drafts, listed tuples and schemes of one's own no order of the tokens need
    have H* as a prefix, not even for two drafts, where Global Resolution (Appendix D) proposes a
    minimum cut in a graph of V^2 arcs.  There psi is minimised by Wolfe's algorithm
    (`otlp.numerics.minimum_norm`), which proves its result for any number of drafts in O(V)
    memory an ordering.
    """
    target, drafts = problem.target, problem.drafts
    subset = drafts.best_subset(target)
    if subset is None:
        found = minimum_norm(
            target, drafts.mean_draft, drafts.priority_marginals, gap, max_iterations
        )
        subset = found.subset
        if found.gap > max(gap, CERTIFIED):
            warnings.warn(
                f"the subset is proved to be optimal within {found.gap:.2g} only: raise "
                f"max_iterations = {max_iterations}",
                stacklevel=2,
            )
    return problem.dual_value(subset), subset


def iid_drafts(problem: Problem) -> IID:
    """The drafts, if they are i.i.d.

    Raises
    ------
    UnsupportedProblemError
        For another scheme.
    """
    if not isinstance(problem.drafts, IID):
        raise UnsupportedProblemError(
            f"{not_iid(problem)}; use max-flow where the tuples can be listed, or orderings"
        )
    return problem.drafts


def not_iid(problem: Problem) -> str:
    """Why a method of section 6 does not take these drafts."""
    return (
        f"the drafts are {problem.drafts!r}: H* and the outer residuals are known for i.i.d. "
        "drafts only"
    )


def best_prefix(target: FloatArray, draft: FloatArray, n: int) -> tuple[Mask, IntArray]:
    """H* for n i.i.d. drafts, and the order of which it is a prefix; O(V log V).

    Parameters
    ----------
    target, draft : ndarray, shape (V,)
        p and q.
    n : int
        Number of drafts.

    Returns
    -------
    subset : ndarray of bool, shape (V,)
        H*; empty where it is so by all but rounding, as psi(H*) < 0 must hold.
    ratios : ndarray of int
        The tokens with q > 0, by p/q ascending.
    """
    ratios = ratio_order(target, draft)
    subset, inside, outside = _best_prefix(target, draft, n, ratios)
    if inside + inclusion_probability(outside, n) > 1.0 - ROUNDING:
        subset = np.zeros_like(subset)
    return subset, ratios


def ratio_order(target: FloatArray, draft: FloatArray) -> IntArray:
    """Tokens with q > 0, by p/q ascending; one sort."""
    with np.errstate(over="ignore"):  # a subnormal q: last, as it should be
        if draft.all():
            return ascending(target / draft)
        tokens = np.flatnonzero(draft)
        return tokens[ascending(target[tokens] / draft[tokens])]


@compiled
def _best_prefix(
    target: FloatArray, draft: FloatArray, n: int, order: IntArray
) -> tuple[Mask, float, float]:
    """The prefix of the least psi, empty where none is below 0; its p, and q of all others."""
    p = q = least = 0.0
    length = 0
    for k in range(order.size):
        p += target[order[k]]
        q += draft[order[k]]
        psi = p - q**n
        if psi < least:
            least, length = psi, k + 1
    subset = np.zeros(target.size, np.bool_)
    for k in range(length):
        subset[order[k]] = True
    return subset, sum_in(target, subset), sum_in(draft, ~subset)
