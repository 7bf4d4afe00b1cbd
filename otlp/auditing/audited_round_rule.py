"""Audited rules over several tokens, paths and trees, with tabular models over few tokens.

A round is lossless if its output, completed by the target to L + 1 tokens, follows the target's
distribution of L + 1 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing.argument_order import read_arguments
from otlp.auditing.audited_rule import (
    AuditedRule,
    Failure,
    Output,
    Rule,
    call,
    draw_rows,
    name_of,
    number_of,
)
from otlp.auditing.draft_check import DraftCheck, first_of
from otlp.auditing.drafted_tree import DraftedRound, Tables, as_tables
from otlp.auditing.gtest import g_test
from otlp.checks import whole_number
from otlp.distribution import FloatArray, IntArray, total_variation
from otlp.errors import InvalidInputError, SizeLimitError, one_line

RoundSampler: TypeAlias = Callable[[Sequence[FloatArray], Any], Any]

PADDING = -1
"""Fills the end of output rows that are shorter than the longest row."""

MOST_TEXTS = 1_000_000


@dataclass(frozen=True, eq=False)
class AuditedRoundRule(AuditedRule):
    """A rule over a tree of drafted tokens.

    Attributes
    ----------
    draft_tables : sequence of ndarray
        The draft model, as `target`.
    drafts : DraftedRound
        How tokens are declared to be drafted from the draft model.
    """

    draft_tables: Tables
    drafts: DraftedRound

    @property
    def width(self) -> int:
        """Number of tokens drafted per round, N."""
        return len(self.drafts.parents)

    def _draft(self, rounds: int, rng: Any) -> IntArray:
        return self.drafts.draw(self.draft_tables, partial(draw_rows, rng=rng), rounds)

    def token_shifts(self, rows: int) -> IntArray:
        """Return different shifts for every other row of a batch, so that their first p differ."""
        row = np.arange(rows)
        return np.where(row % 2, (row + 1) // 2, 0) % self.vocab_size

    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Run the rule on rows of drafted tokens; return the outputs."""
        size, p = self.vocab_size, self.drafts.at_nodes(self.target, tokens)
        q = self.drafts.at_nodes(self.draft_tables, tokens)
        shifts = self.token_shifts(len(tokens) if self.batch else 1)
        if shifts.any():
            names = ((np.arange(size) - shifts[:, None]) % size)[:, None]
            tokens = (tokens + shifts[:, None]) % size
            p, q = (np.take_along_axis(laws, names, axis=2) for laws in (p, q))
        arguments = self.drafts.rule_arguments(tokens.copy(), p, q)
        read = partial(output_of, most=len(self.target), size=size)
        if self.batch is None:
            return [read(call(self.rule, *row, rng)) for row in zip(*arguments, strict=True)]
        answer = call(self.rule, *arguments, rng)
        if isinstance(answer, Failure):
            return [answer] * len(tokens)
        try:
            outputs = [read(row) for row in answer]
        except TypeError:
            outputs = []
        if len(outputs) != len(tokens):
            return [Failure(f"returns {one_line(answer)}, not one row per round")] * len(tokens)
        return [
            output
            if isinstance(output, Failure)
            else tuple((token - shift) % size for token in output)
            for output, shift in zip(outputs, shifts.tolist(), strict=True)
        ]

    def compare_drafts(
        self, drafted: Mapping[tuple[int, ...], float], tolerance: float
    ) -> DraftCheck:
        """Compare the law of the drafted tokens with the declared scheme."""
        tokens, mass = self.drafts.listed(self.draft_tables)
        found = np.zeros(len(mass))
        for drawn, weight in drafted.items():
            found[number_of(drawn, self.vocab_size)] += weight
        apart = total_variation(found, mass)
        return DraftCheck(
            agrees=apart <= tolerance,
            declared=self.drafted,
            total_variation=apart,
            impossible=float(found[mass <= 0.0].sum()),
            example=first_of(tokens, (mass <= 0.0) & (found > 0.0)),
        )

    def test_drafts(self, tokens: IntArray, rate: float, rng: np.random.Generator) -> DraftCheck:
        """Test sampled drafts against the declared scheme."""
        listed, mass = self.drafts.listed(self.draft_tables)
        cells = tokens @ self.vocab_size ** np.arange(tokens.shape[1])[::-1]
        counts = np.bincount(cells, minlength=mass.size)
        test = g_test(counts, mass, rate)
        return DraftCheck(
            agrees=not test.rejected,
            declared=self.drafted,
            impossible=test.impossible,
            example=first_of(listed, (mass <= 0.0) & (counts > 0)),
            tests={"drafted tokens": test},
        )


def output_of(row: Any, most: int, size: int) -> Output:
    """Return the 1 to `most` tokens of a result, without padding, or a Failure."""
    if isinstance(row, Failure):
        return row
    try:
        tokens = np.asarray(row)
    except Exception:
        return Failure(f"returns {one_line(row)}, which is not a list of tokens")
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        return Failure(f"returns {one_line(row)}, which is not a list of tokens")
    kept = tokens[: np.argmax(tokens == PADDING)] if (tokens == PADDING).any() else tokens
    if (tokens[kept.size :] != PADDING).any():
        return Failure(f"returns {tokens.tolist()}, with tokens after the padding")
    if not 1 <= kept.size <= most:
        return Failure(f"returns {kept.size} tokens, not 1 to {most}")
    if not ((kept >= 0) & (kept < size)).all():
        return Failure(f"returns {kept.tolist()}, outside the vocabulary [0, {size})")
    return tuple(kept.tolist())


def audited_round_rule(
    rule: Rule,
    target: Any,
    draft: Any,
    drafts: DraftedRound,
    sampler: RoundSampler | None,
    batch: int | None,
    name: Any,
) -> AuditedRoundRule:
    """Check the arguments of `otlp.audit_rounds`."""
    if batch is not None:
        batch = whole_number(batch, "batch", 1)
    for what, function in (("rule", rule), ("sampler", sampler)):
        if not callable(function) and (what, function) != ("sampler", None):
            raise InvalidInputError(f"{what} is a {type(function).__name__}: pass a callable")
    read, reading = read_arguments(rule)
    if not isinstance(drafts, DraftedRound):
        raise InvalidInputError(
            f"drafts is a {type(drafts).__name__}: pass DraftedPaths(paths, length) or "
            "DraftedTree(parents) from otlp.auditing"
        )
    targets = as_tables(target, drafts.depth + 1, "target")
    proposals = as_tables(draft, drafts.depth, "draft")
    size = targets[0].shape[-1]
    if proposals[0].shape[-1] != size:
        raise InvalidInputError(
            f"target has {size} tokens and draft {proposals[0].shape[-1]}: pass two models over "
            "the same vocabulary"
        )
    if float(size) ** (drafts.depth + 1) > MOST_TEXTS:
        raise SizeLimitError(
            f"there are {size}^{drafts.depth + 1} texts of {drafts.depth + 1} tokens, more than "
            f"{MOST_TEXTS:,}: use a smaller vocabulary or shorter paths"
        )
    most = drafts.most_siblings
    if drafts.siblings != "iid" and any((table > 0.0).sum(1).min() < most for table in proposals):
        raise InvalidInputError(
            f"a row of draft has fewer than {most} tokens of positive probability, but {most} "
            "distinct siblings are drafted from it"
        )
    label = name if isinstance(name, str) else name_of(rule)
    draw = None
    if sampler is not None:
        draw_tokens = sampler

        def draw(rng: Any) -> IntArray:
            tables = [table.reshape((size,) * (t + 1)).copy() for t, table in enumerate(proposals)]
            return np.asarray(draw_tokens(tables, rng)).reshape(-1)

    return AuditedRoundRule(
        label, str(drafts), targets, read, draw, None, batch, reading, proposals, drafts
    )
