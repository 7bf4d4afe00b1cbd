"""A plan that draws a rank for each draft independently and selects the best rank."""

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
"""Maximum number of members of all token sets for an enumeration of the acceptance."""


class RankPlan(SelectionPlan):
    """Select the drafted token with the best rank, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        Problem with drafts without replacement.
    selection_distribution : ndarray, shape (V,)
        Distribution y of the selected token.
    names : ndarray, shape (V,)
        Group of each token, V + g for group g < G, or the token itself.  The tokens of groups must
        be unlikely; see `otlp.drafts.token_groups`.
    ranked : ndarray, shape (M,)
        Token or group of each rank, from the lowest to the best rank.
    shares : ndarray, shape (M,)
        Probability that the token, or each token of the group, draws this rank; the shares of a
        token sum to one.

    Attributes
    ----------
    names : ndarray, shape (V,)
    offsets : ndarray, shape (V + G + 1,), int64
        Name i has the entries ``offsets[i]`` to ``offsets[i + 1]`` of the next two arrays; none if
        no token with this name is ever drafted.
    ranks : ndarray, shape (M,), int32
        Ranks of each name, ascending; the largest rank drawn is the best, and drafted tokens that
        draw the same rank are equally likely to be selected.
    reached : ndarray, shape (M,)
        Cumulative probability of the ranks; the last entry of a name counts as 1.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not drawn without replacement.

    Notes
    -----
    O(V) memory; O(n log V) to select; the exact distribution of a selection costs O(n) for each
    rank of a drafted token.

    If the gap is not zero, the replacement of a rejected token may be another drafted token.
    `marginals` includes this if all token sets can be listed; otherwise its acceptance is that of
    the selected token, a lower bound that is too low by at most the gap.
    """

    def __init__(
        self,
        problem: Problem,
        selection_distribution: FloatArray,
        names: IntArray,
        ranked: IntArray,
        shares: FloatArray,
    ) -> None:
        super().__init__(problem, selection_distribution)
        if not isinstance(problem.drafts, WithoutReplacement):
            raise UnsupportedProblemError(
                f"the drafts of a RankPlan must be without replacement, got {problem.drafts!r}"
            )
        self.drafts = problem.drafts
        self.names = names
        self.offsets, self.ranks, self.reached = _by_name(
            ranked, shares, max(int(names.max()) + 1, names.size)
        )

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Sample as `select_many` does, in steps that an audit can enumerate exactly."""
        drawn = []
        for name in self.names[draft_tokens].tolist():
            row = slice(self.offsets[name], self.offsets[name + 1])
            place = invert_cdf(self.reached[row], rng.random())
            drawn.append(int(self.ranks[row][place]))
        best = draft_tokens[np.array(drawn) == max(drawn)]
        return int(best[rng.integers(best.size)])

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the rank of each drafted token and select the best rank of each tuple."""
        rows = self.offsets, self.ranks, self.reached
        return _best_ranked(tokens, self.names, rng.random(tokens.shape), *rows)

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the exact distribution of the selected token; see `SelectionPlan`."""
        tokens = np.unique(draft_tokens)
        rows = _rows(self.names[tokens], self.offsets, self.ranks, self.reached)
        return tokens, best_of(np.ones(tokens.size, dtype=np.int64), *rows)

    def realised_selection_distribution(self) -> FloatArray:
        """Compute the distribution of the selected token from the ranks; an integral over time."""
        ranked, shares = _steps(self.offsets, self.ranks, self.reached)
        with_ranks = (np.diff(self.offsets) > 0)[self.names]
        if not (np.all(shares >= 0.0) and np.all(with_ranks, where=self.drafts.support)):
            raise InvalidInputError(
                "the shares of each token that can be drafted must be probabilities that sum to one"
            )
        grouped = self.names >= self.names.size
        if not np.all(self.drafts._race.groupable, where=grouped):
            raise InvalidInputError(
                "the tokens of a group must be unlikely: otlp.drafts.token_groups states the limit"
            )
        return self.drafts._best_ranked(self.names, ranked, shares)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution; see the notes of the class."""
        if self.drafts.set_count()[1] > ENUMERATION_LIMIT:
            return super().marginals()
        sets = self.drafts.enumerate_sets()
        rejected = np.empty(len(sets))
        for row, (begin, end) in enumerate(pairwise(sets.offsets)):
            tokens, chances = self.selection(sets.members[begin:end])
            rejected[row] = max(0.0, 1.0 - float(chances @ self.accept[tokens]))
        return self._with_drafted_replacements(sets, rejected)


@compiled
def _by_name(
    tokens: IntArray, shares: FloatArray, vocab_size: int
) -> tuple[IntArray, npt.NDArray[np.int32], FloatArray]:
    """Return `offsets`, `ranks` and `reached` from the token and the share of each rank."""
    ends = np.zeros(vocab_size + 2, np.int64)
    for token in tokens:
        ends[token + 2] += 1
    for token in range(vocab_size):
        ends[token + 2] += ends[token + 1]
    ranks, reached = np.empty(tokens.size, np.int32), np.empty(tokens.size)
    for rank in range(tokens.size):
        place = ends[tokens[rank] + 1]
        ranks[place], reached[place] = rank, shares[rank]
        ends[tokens[rank] + 1] = place + 1
    for token in range(vocab_size):
        before = 0.0
        for place in range(ends[token], ends[token + 1]):
            before = min(1.0, before + reached[place])
            reached[place] = before
        if ends[token + 1] > ends[token]:
            reached[ends[token + 1] - 1] = 1.0
    return ends[:-1], ranks, reached


@compiled
def _steps(
    offsets: IntArray, ranks: npt.NDArray[np.int32], reached: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return token and share of each rank, the lowest first; the inverse of `_by_name`."""
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
    names: IntArray,
    uniform: FloatArray,
    offsets: IntArray,
    ranks: npt.NDArray[np.int32],
    reached: FloatArray,
) -> IntArray:
    best = np.empty(tokens.shape[0], np.int64)
    for row in range(tokens.shape[0]):
        highest, level = -1, 0.0
        for j in range(tokens.shape[1]):
            name, drawn = names[tokens[row, j]], uniform[row, j]
            first = offsets[name]
            begin, end = first, offsets[name + 1] - 1
            while begin < end:
                middle = (begin + end) // 2
                if reached[middle] > drawn:
                    end = middle
                else:
                    begin = middle + 1
            # The place of the number in the share of the rank is uniform: it orders equal ranks.
            before = reached[begin - 1] if begin > first else 0.0
            above = (drawn - before) / (reached[begin] - before)
            if ranks[begin] > highest or (ranks[begin] == highest and above > level):
                best[row], highest, level = tokens[row, j], ranks[begin], above
    return best


@compiled
def _rows(
    tokens: IntArray, offsets: IntArray, ranks: npt.NDArray[np.int32], reached: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the ranks of the given tokens and their masses, in rows for `best_of`."""
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
