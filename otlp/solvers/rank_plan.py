"""A plan that lets every drafted token draw its rank by itself and selects the best one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import WithoutReplacement
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.numerics.best_of import END, best_of
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals, SelectionPlan
from otlp.problem import Problem

ENUMERATION_LIMIT = 3_000
"""Members of all token sets up to which the acceptance is enumerated."""


class RankPlan(SelectionPlan):
    """Select the drafted token of the best rank, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        With drafts without replacement.
    selection_distribution : ndarray, shape (V,)
        The distribution y of the selected token.
    tokens : ndarray, shape (M,)
        Whose rank each is, from the lowest to the best: no two tokens share a rank.
    shares : ndarray, shape (M,)
        How often the token has that rank; those of a token sum to one.

    Attributes
    ----------
    offsets : ndarray, shape (V + 1,), int64
        Token i has the entries ``offsets[i]`` to ``offsets[i + 1]`` of the next two; none if it
        is never drafted.
    ranks : ndarray, shape (M,), int32
        The token's ranks, ascending; the largest drawn is the best.
    reached : ndarray, shape (M,)
        Probability of the token's ranks so far; the last of a token counts as 1.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not drawn without replacement.

    Notes
    -----
    O(V) memory; O(n log V) to select; the exact distribution of a selection costs O(n) for each
    rank of a drafted token.

    While the gap is not zero, a rejected token can be replaced by another drafted one.
    `marginals` counts this where the token sets are few enough to be listed; elsewhere its
    acceptance is that of the selected token, a lower bound that is short by at most the gap.
    """

    def __init__(
        self,
        problem: Problem,
        selection_distribution: FloatArray,
        tokens: IntArray,
        shares: FloatArray,
    ) -> None:
        super().__init__(problem, selection_distribution)
        if not isinstance(problem.drafts, WithoutReplacement):
            raise UnsupportedProblemError(
                f"a plan by ranks needs drafts without replacement, not {problem.drafts!r}"
            )
        self.drafts = problem.drafts
        self.offsets, self.ranks, self.reached = _by_token(tokens, shares, problem.vocab_size)

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Draw as `select_many` does, in steps that an audit can follow to their exact law."""
        drawn = []
        for token in draft_tokens.tolist():
            row = slice(self.offsets[token], self.offsets[token + 1])
            place = invert_cdf(self.reached[row], rng.random())
            drawn.append((int(self.ranks[row][place]), token))
        return int(max(drawn)[1])

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the rank of each drafted token, and take the best of each tuple."""
        uniform = rng.random(tokens.shape)
        return _best_ranked(tokens, uniform, self.offsets, self.ranks, self.reached)

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Distribution of the selected token, exact up to rounding; see `SelectionPlan`."""
        tokens = np.unique(draft_tokens)
        rows = _rows(tokens, self.offsets, self.ranks, self.reached)
        return tokens, best_of(np.ones(tokens.size, dtype=np.int64), *rows)

    def realised_selection_distribution(self) -> FloatArray:
        """Distribution of the selected token, from the ranks alone; an integral over time."""
        tokens, shares = _steps(self.offsets, self.ranks, self.reached)
        drafted = self.drafts.support
        if not (np.all(shares >= 0.0) and np.all(np.diff(self.offsets) > 0, where=drafted)):
            raise InvalidInputError(
                "the shares of each token that can be drafted must be probabilities that sum to one"
            )
        return self.drafts._best_ranked(tokens, shares)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Acceptance and output distribution; see the notes of the class."""
        if self.drafts.set_count()[1] > ENUMERATION_LIMIT:
            return super().marginals()
        sets = self.drafts.enumerate_sets()
        rejected = np.empty(len(sets))
        for row, (begin, end) in enumerate(pairwise(sets.offsets)):
            tokens, chances = self.selection(sets.members[begin:end])
            rejected[row] = max(0.0, 1.0 - float(chances @ self.accept[tokens]))
        return self._with_drafted_replacements(sets, rejected)


@compiled
def _by_token(
    tokens: IntArray, shares: FloatArray, vocab_size: int
) -> tuple[IntArray, npt.NDArray[np.int32], FloatArray]:
    """Offsets, ranks and what is reached, from the token and the share of each rank."""
    offsets = np.zeros(vocab_size + 1, np.int64)
    for token in tokens:
        offsets[token + 1] += 1
    for token in range(vocab_size):
        offsets[token + 1] += offsets[token]
    at = offsets[:-1].copy()
    ranks, reached = np.empty(tokens.size, np.int32), np.empty(tokens.size)
    for rank in range(tokens.size):
        token = tokens[rank]
        place = at[token]
        ranks[place] = rank
        before = reached[place - 1] if place > offsets[token] else 0.0
        reached[place] = min(1.0, before + shares[rank])
        at[token] += 1
    for token in range(vocab_size):
        if offsets[token + 1] > offsets[token]:
            reached[offsets[token + 1] - 1] = 1.0
    return offsets, ranks, reached


@compiled
def _steps(
    offsets: IntArray, ranks: npt.NDArray[np.int32], reached: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Token and share of each rank, the lowest first: back from `_by_token`."""
    tokens, shares = np.empty(ranks.size, np.int64), np.empty(ranks.size)
    for token in range(offsets.size - 1):
        before = 0.0
        for place in range(offsets[token], offsets[token + 1]):
            tokens[ranks[place]] = token
            shares[ranks[place]] = reached[place] - before
            before = reached[place]
    return tokens, shares


@compiled
def _best_ranked(
    tokens: IntArray,
    uniform: FloatArray,
    offsets: IntArray,
    ranks: npt.NDArray[np.int32],
    reached: FloatArray,
) -> IntArray:
    best = np.empty(tokens.shape[0], np.int64)
    for row in range(tokens.shape[0]):
        highest = -1
        for j in range(tokens.shape[1]):
            token = tokens[row, j]
            begin, end = offsets[token], offsets[token + 1] - 1
            while begin < end:
                middle = (begin + end) // 2
                if reached[middle] > uniform[row, j]:
                    end = middle
                else:
                    begin = middle + 1
            if ranks[begin] > highest:
                best[row], highest = token, ranks[begin]
    return best


@compiled
def _rows(
    tokens: IntArray, offsets: IntArray, ranks: npt.NDArray[np.int32], reached: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Ranks of some tokens and their masses, in rows as `best_of` wants."""
    begins = np.zeros(tokens.size + 1, np.int64)
    for j in range(tokens.size):
        begins[j + 1] = begins[j] + offsets[tokens[j] + 1] - offsets[tokens[j]] + 1
    cells, mass = np.full(begins[-1], END), np.zeros(begins[-1])
    for j in range(tokens.size):
        at, before = begins[j], 0.0
        for place in range(offsets[tokens[j]], offsets[tokens[j] + 1]):
            cells[at], mass[at] = ranks[place], reached[place] - before
            before = reached[place]
            at += 1
    return begins, cells, mass
