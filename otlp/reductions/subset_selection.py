"""Subset selection: the optimal acceptance and its proof, without a plan."""

from __future__ import annotations

import warnings

import numpy as np

from otlp.checks import check_number, own_float_errors, whole_number
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability
from otlp.numerics.minimum_norm import minimum_norm
from otlp.numerics.random_weights import random_weights
from otlp.numerics.ratio_bins import power
from otlp.numerics.sums import sum_in
from otlp.problem import Problem

CERTIFIED = 1e-6
"""Gap of the proof above which, if it also exceeds `gap`, a warning is issued."""

ROUNDING = 1e-14
"""Difference to one below which alpha* is one."""


@own_float_errors
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
        Maximum number of iterations or orderings, for schemes without a closed form.

    Returns
    -------
    alpha : float
        The optimal acceptance, or an upper bound on it if the value is not exact.
    subset : ndarray of bool, shape (V,)
        H*.  If all drafts are inside H*, even the best plan must sometimes reject.

    Warns
    -----
    UserWarning
        If alpha is not proved within 1e-6 or `gap`; the message says why the search ended.

    Raises
    ------
    InvalidInputError
        If `gap` or `max_iterations` is out of range.

    Notes
    -----
    For i.i.d. drafts, and for drafts without replacement, H* is a prefix of the tokens sorted by
    p/q ascending (Hu et al. 2025, section 4.2; Global Resolution, sections 5.1 and S).  For
    greedy drafts and hubs, H* consists of the top tokens and the tokens with p < q~, where q~ is
    the distribution of the last draft.  `DraftScheme.best_subset` returns these in O(V), or after a
    sort of the tokens for drafts without replacement.

    For different drafts, listed tuples and user-defined schemes, H* need not be a prefix of any
    natural order of the tokens, not even for two drafts, for which Global Resolution (Appendix D)
    proposes a minimum cut in a graph of V^2 arcs.  For these schemes psi is minimised by Wolfe's
    algorithm (`otlp.numerics.minimum_norm`), which proves its result for any number of drafts in
    O(V) memory per ordering.  For independent drafts `otlp.numerics.random_weights` comes first,
    which proves its result in a few passes unless its iteration stalls.
    """
    subset, doubt = find_subset(problem, gap, max_iterations)
    if doubt:
        warnings.warn(doubt, stacklevel=3)  # own_float_errors adds a frame.
    return problem.dual_value(subset), subset


@own_float_errors
def find_subset(problem: Problem, gap: float = 1e-9, max_iterations: int = 300) -> tuple[Mask, str]:
    """Return H* as `subset_selection` does, with the text of the warning instead of a warning.

    The text is empty if the subset is proved to be optimal.  For callers that certify the bound.
    """
    check_number("gap", gap, lambda gap: gap >= 0.0, "be a number >= 0")
    whole_number(max_iterations, "max_iterations", 1)
    target, drafts = problem.target, problem.drafts
    subset = drafts.best_subset(target)
    if subset is not None:
        return subset, ""
    if drafts._independent is not None:
        weighted = random_weights(target, drafts._independent, gap, max_iterations)
        if weighted.gap <= gap:
            return weighted.subset, ""
    found = minimum_norm(target, drafts.mean_draft, drafts.priority_marginals, gap, max_iterations)
    if found.gap <= max(gap, CERTIFIED):
        return found.subset, ""
    advice = f"the search was stopped by {found.stopped}"
    if found.stopped == "iterations":
        advice = f"increase max_iterations = {max_iterations}"
    return found.subset, f"the subset is proved to be optimal only within {found.gap:.2g}: {advice}"


def iid_drafts(problem: Problem) -> IID:
    """Return the drafts of a problem with i.i.d. drafts.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.
    """
    if not isinstance(problem.drafts, IID):
        raise UnsupportedProblemError(
            f"{not_iid(problem)}; use max-flow if the tuples can be listed, or orderings"
        )
    return problem.drafts


def not_iid(problem: Problem) -> str:
    """Return the reason why the methods of section 6 do not support the drafts."""
    return (
        f"drafts must be i.i.d., got {problem.drafts}: H* and the outer residuals are not "
        "known for other drafts"
    )


def best_prefix(target: FloatArray, draft: FloatArray, n: int) -> tuple[Mask, IntArray]:
    """Return H* for n i.i.d. drafts, and the order of which H* is a prefix; O(V log V).

    Parameters
    ----------
    target, draft : ndarray, shape (V,)
        p and q.
    n : int
        Number of drafts.

    Returns
    -------
    subset : ndarray of bool, shape (V,)
        H*; empty if psi(H*) < 0 does not hold beyond rounding.
    ratios : ndarray of int
        The tokens with q > 0, by p/q ascending.
    """
    ratios = ratio_order(target, draft)
    subset = _best_prefix(target, draft, n, ratios)
    outside = inclusion_probability(sum_in(draft, ~subset), n)
    if sum_in(target, subset) + outside > 1.0 - ROUNDING:
        subset = np.zeros_like(subset)
    return subset, ratios


def ratio_order(target: FloatArray, draft: FloatArray) -> IntArray:
    """Return the tokens with q > 0, by p/q ascending; one sort."""
    with np.errstate(over="ignore"):  # the ratio of a subnormal q may overflow, and sorts last
        if draft.all():
            return ascending(target / draft)
        tokens = np.flatnonzero(draft)
        return tokens[ascending(target[tokens] / draft[tokens])]


@compiled
def _best_prefix(target: FloatArray, draft: FloatArray, n: int, order: IntArray) -> Mask:
    """Return the prefix of least psi; empty if psi >= 0."""
    p = q = least = 0.0
    length = 0
    for k in range(order.size):
        p += target[order[k]]
        q += draft[order[k]]
        psi = p - power(q, n)
        if psi < least:
            least, length = psi, k + 1
    subset = np.empty(target.size, np.bool_)
    for x in range(target.size):
        subset[x] = False
    for k in range(length):
        subset[order[k]] = True
    return subset
