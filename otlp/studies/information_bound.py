"""Information-theoretic upper bound on the acceptance of every rule, from a subset of tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.checks import check_mask
from otlp.problem import Problem


def information_bound(problem: Problem, subset: npt.ArrayLike | None = None) -> float:
    """Compute the upper bound on the acceptance from one subset of tokens.

    A token y of the subset is accepted at most as often as it is drafted, and with probability at
    most p(y).  The tokens of a tuple outside the subset are accepted at most as often as the tuple
    is drafted, and with probability at most the sum of their p:

        sum over y inside of min(p(y), P(y is drafted))
        + sum over tuples of min(P(tuple), p(tokens of the tuple outside))

    Parameters
    ----------
    problem : Problem
    subset : array_like, optional
        Mask of shape (V,), or token ids, default all tokens.  The default does not enumerate
        tuples.

    Returns
    -------
    float
        Upper bound on the optimal acceptance.

    Raises
    ------
    InvalidInputError
        If `subset` is not a subset of the tokens.
    SizeLimitError
        If `subset` is not all tokens and there are too many tuples to enumerate.

    Notes
    -----
    This is the term of one subset Omega_0 of SpecTr (Sun et al. 2023), Lemma 3, Eq. 9, with p the
    target; the proof holds for every scheme.  O(V) for all tokens, else the cost of enumerating
    the tuples.  `Problem.dual_value` computes tighter bounds.

    Examples
    --------
    >>> import otlp
    >>> from otlp.studies.information_bound import information_bound
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> round(information_bound(problem), 6), round(information_bound(problem, [0]), 6)
    (0.91, 0.85)
    """
    once = np.minimum(problem.target, problem.drafts.inclusion)
    inside = np.ones(once.size, dtype=bool)
    if subset is not None:
        inside = check_mask(subset, problem.vocab_size)
    if inside.all():
        return float(once.sum())
    tuples = problem.drafts.enumerate_tuples()
    ordered = np.sort(tuples.tokens, axis=1)
    outside = np.where(inside, 0.0, problem.target)[ordered]
    outside[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0.0
    others = np.minimum(tuples.mass, outside.sum(axis=1))
    return float(once[inside].sum()) + float(others.sum())
