"""Canonical decomposition: importance sampling, then single-draft speculative sampling."""

from __future__ import annotations

import numpy as np

from otlp.checks import MEMORY_LIMIT, is_a
from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import DraftTuples
from otlp.plan import Plan, SelectionPlan


class CanonicalDecomposition(SelectionPlan):
    """A plan in two steps (Khisti et al. 2025; Global Resolution, Theorem 4.1 and Appendix B).

    The first step selects a drafted token i with importance weights beta(i | tuple); the selected
    token has the distribution p^I.  The second step verifies it as a single draft: the token is
    accepted with probability min(1, p_i / p^I_i), and otherwise replaced by a draw from
    (p - p^I)^+, normalised.  The acceptance, sum_i min(p_i, p^I_i), is the objective of the
    paper's Theorem B.1.

    Parameters
    ----------
    plan : Plan
        Plan to decompose.  S(i, tuple) is the mass that the plan verifies as i, for i in the tuple.
        The weights are S normalised in each tuple, and uniform over the distinct tokens of tuples
        with S = 0.
    memory_limit : int
        Maximum size of the list of tuples, in bytes.

    Attributes
    ----------
    tuples : DraftTuples
        The m tuples of positive probability.
    weights : ndarray, shape (m, n)
        beta at each place of a tuple; a token that occurs twice has half of its weight at each
        place.
    selection_distribution : ndarray, shape (V,)
        p^I.
    accept, residual : ndarray, shape (V,)
        Acceptance probability and residual distribution of the second step.

    Raises
    ------
    SizeLimitError
        If there are too many tuples to list.

    Notes
    -----
    O(m V), for one conditional per tuple.  A lossless plan accepts a mass of token i that is at
    most p^I_i and at most p_i.  The acceptance is therefore at least that of the plan, and equal to
    it if the plan is optimal.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> plan = reductions.CanonicalDecomposition(otlp.solve(problem).plan)
    >>> tokens, weights = plan.selection([1, 2])            # beta
    >>> tokens.tolist(), round(float(weights.sum()), 6)
    ([1, 2], 1.0)
    >>> round(float(plan.marginals().acceptance.sum()), 6)
    0.85
    """

    def __init__(self, plan: Plan, memory_limit: int = MEMORY_LIMIT) -> None:
        is_a(plan, Plan, "plan")
        self.tuples: DraftTuples = plan.problem.drafts.enumerate_tuples(memory_limit)
        tokens = self.tuples.tokens
        times = (tokens[:, :, None] == tokens[:, None, :]).sum(axis=2)
        verified = np.array([plan.conditional(row)[row] for row in tokens])
        # Use shares of the tuple's mass for S / sum S, since the mass may be subnormal.
        shares = np.maximum(verified, 0.0) / times
        sums = shares.sum(axis=1, keepdims=True)
        uniform = 1.0 / times / (1.0 / times).sum(axis=1, keepdims=True)
        self.weights: FloatArray = np.divide(shares, sums, out=uniform, where=sums > 0.0)
        mass = self.tuples.mass[:, None] * self.weights
        law = sum_by(tokens.ravel(), mass.ravel(), plan.problem.vocab_size)
        super().__init__(plan.problem, law)

    def _weights_of(self, draft_tokens: IntArray) -> FloatArray:
        """Return the weights of the places of a tuple; equal if its probability underflowed."""
        found = self.tuples.find(draft_tokens)
        return self.weights[found] if found >= 0 else np.full(self.problem.n, 1 / self.problem.n)

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw a token of each tuple with the weights of its places."""
        cumulative = np.cumsum([self._weights_of(row) for row in tokens], axis=1)
        drawn = rng.random((len(tokens), 1)) * cumulative[:, -1:]
        places = (drawn >= cumulative).sum(axis=1)
        chosen = np.minimum(places, self.problem.n - 1)[:, None]
        return np.take_along_axis(tokens, chosen, axis=1)[:, 0]

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return beta(. | tuple): the distinct tokens of the tuple, and their weights."""
        tokens, places = np.unique(np.asarray(draft_tokens), return_inverse=True)
        return tokens, sum_by(places, self._weights_of(np.asarray(draft_tokens)), tokens.size)

    def realised_selection_distribution(self) -> FloatArray:
        """Return p^I as computed from the weights."""
        return self.selection_distribution
