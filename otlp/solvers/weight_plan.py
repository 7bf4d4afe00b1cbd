"""A plan that draws a weight for each draft and selects a draft in proportion to the weights."""

from __future__ import annotations

import numpy as np

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf, sum_by
from otlp.drafts.token_sets import DraftTuples, merge_by_set
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.numerics.random_weights import LEVELS, chances, choices, on_levels, selected, weights
from otlp.plan import Marginals, SelectionPlan
from otlp.problem import Problem

ENUMERATION_LIMIT = 6_000
"""Maximum number of tokens in all tuples for an enumeration of the acceptance."""


class WeightPlan(SelectionPlan):
    """Select a draft in proportion to random weights, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        Problem with independent drafts.
    selection_distribution : ndarray, shape (V,)
        Distribution y of the selected token.
    positions : ndarray, shape (V,)
        Position of each token on the ladder of weights, in [0, LEVELS - 1] in the lower half or in
        [LEVELS, 2 LEVELS - 1] in the upper half; see `otlp.numerics.random_weights`.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not independent.
    InvalidInputError
        If there is not one position per token, or a position is outside the halves of the ladder.

    Notes
    -----
    O(V) memory; O(n) to select; the exact distribution of a selection costs O(n) for each of 2^n
    combinations of levels, or for each node of the integral over arrival times if n > 8.

    If the gap is not zero, the replacement of a rejected token may be another drafted token.
    `marginals` includes this if there are few tuples; otherwise its acceptance is that of
    the selected token, a lower bound that is too low by at most the gap.
    """

    def __init__(
        self, problem: Problem, selection_distribution: FloatArray, positions: FloatArray
    ) -> None:
        super().__init__(problem, selection_distribution)
        if problem.drafts._independent is None:
            raise UnsupportedProblemError(
                f"the drafts of a WeightPlan must be independent, got {problem.drafts!r}"
            )
        if np.shape(positions) != (problem.vocab_size,):
            raise InvalidInputError(
                f"positions must have shape ({problem.vocab_size},), got {np.shape(positions)}"
            )
        positions = np.asarray(positions, dtype=float)
        lower, upper = positions <= LEVELS - 1, positions >= LEVELS
        if not np.all((positions >= 0.0) & (lower | upper) & (positions <= 2 * LEVELS - 1)):
            raise InvalidInputError(
                f"positions must be in [0, {LEVELS - 1}] or in [{LEVELS}, {2 * LEVELS - 1}], got "
                f"{positions.min()} to {positions.max()}"
            )
        self.positions = positions

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Sample as `select_many` does, in steps that an audit can enumerate exactly."""
        places = self.positions[draft_tokens]
        levels = np.floor(places)
        drawn = levels + [rng.random() < part for part in (places - levels).tolist()]
        return int(draft_tokens[invert_cdf(np.cumsum(weights(drawn)), rng.random())])

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the level of each drafted token, and one draft of each tuple by its weight."""
        places = self.positions[tokens]
        levels = np.floor(places)
        levels += rng.random(tokens.shape) < places - levels
        reached = np.cumsum(weights(levels), axis=1)
        total = reached[:, -1:]
        drawn = np.minimum(rng.random(total.shape) * total, np.nextafter(total, 0.0))
        selected: IntArray = tokens[np.arange(len(tokens)), np.argmax(reached > drawn, axis=1)]
        return selected

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the exact distribution of the selected token; see `SelectionPlan`."""
        tokens, places = np.unique(draft_tokens, return_inverse=True)
        chosen = choices(self.positions[draft_tokens][None])[0]
        return tokens, sum_by(places, chosen, tokens.size)

    def realised_selection_distribution(self) -> FloatArray:
        """Compute the distribution of the selected token from the positions; O(nV)."""
        drafts = self.problem.drafts._independent
        assert drafts is not None
        by_token = np.array(drafts.T, order="C")
        masses = on_levels(by_token, self.positions, 2 * LEVELS)
        return selected(by_token, self.positions, chances(masses))

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution; see the notes of the class."""
        drafts = self.problem.drafts
        if drafts.tuple_count() * drafts.n > ENUMERATION_LIMIT:
            return super().marginals()
        tuples = drafts.enumerate_tuples()
        accepted = choices(self.positions[tuples.tokens]) * self.accept[tuples.tokens]
        rejected = tuples.mass * np.maximum(1.0 - accepted.sum(axis=1), 0.0)
        sets = merge_by_set(DraftTuples(tuples.tokens, rejected))
        return self._with_drafted_replacements(sets, np.ones(len(sets)))
