"""Exact distribution of a round on tabular models, by enumeration: validity, block efficiency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from otlp.checks import is_a
from otlp.decode.choosing import enumerate_choices
from otlp.decode.drafting import Drafting
from otlp.decode.models.tabular import TabularModel
from otlp.decode.round import Transform, apply_transform, check_round, transformed
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Verification
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class RoundLaw:
    """Exact distributions of a round over all drafts and decisions.

    Attributes
    ----------
    tokens : ndarray, shape (V, ..., V), L + 1 axes
        Distribution of the next L + 1 tokens: the tokens of the round, then target samples.
    lengths : ndarray, shape (L + 1,)
        Distribution of the number of accepted tokens.
    """

    tokens: FloatArray
    lengths: FloatArray

    @property
    def block_efficiency(self) -> float:
        """Mean number of tokens per round: accepted tokens and the correction token."""
        return 1.0 + float(self.lengths @ np.arange(self.lengths.size))


class Tally:
    """Accumulator of the distribution of a round over its outcomes.

    Parameters
    ----------
    target : TabularModel
        Target with tables for at least `length` + 1 tokens.
    length : int
        Maximum path length L.
    """

    def __init__(self, target: TabularModel, length: int) -> None:
        self._joint = target.joint(length + 1)
        self.law = RoundLaw(np.zeros_like(self._joint), np.zeros(length + 1))

    def add(self, accepted: Sequence[int], mass: float, correction: FloatArray) -> None:
        """Add an outcome: accepted tokens, its mass, and the distribution of the correction."""
        self.law.lengths[len(accepted)] += mass * float(correction.sum())
        # The correction is followed by target tokens, conditional on the correction.
        rest = self._joint[tuple(accepted)]
        shape = (-1,) + (1,) * (rest.ndim - 1)
        total = rest.reshape(rest.shape[0], -1).sum(axis=1).reshape(shape)
        after = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0.0)
        self.law.tokens[tuple(accepted)] += after * (mass * correction).reshape(shape)


def draft_trees(draft: TabularModel, drafting: Drafting) -> Iterator[tuple[DraftTree, float]]:
    """Yield all draft trees of a drafting with their probabilities."""
    draft.start(np.empty(0, dtype=np.int64))
    return enumerate_choices(lambda chooser: drafting.draft(draft, chooser))


def transformed_model(
    draft: TabularModel, target: TabularModel, transform: Transform | None
) -> TabularModel:
    """Return the tabular model that a cascade decodes from; the target if there is no transform."""
    if transform is None:
        return target
    tables = []
    for q, p in zip(draft.tables, target.tables, strict=False):
        size = q.shape[-1]
        pairs = zip(q.reshape(-1, size), p.reshape(-1, size), strict=True)
        rows = [transformed(transform, a, b) for a, b in pairs]
        tables.append(np.stack(rows).reshape(q.shape))
    return TabularModel(tables, f"{draft.name} and {target.name}")


def check_tabular(draft: TabularModel, target: TabularModel, drafting: Drafting) -> None:
    """Raise InvalidInputError if the models are not tabular or cover fewer than L + 1 tokens."""
    is_a(draft, TabularModel, "draft")
    is_a(target, TabularModel, "target")
    is_a(drafting, Drafting, "drafting")
    covered = min(draft.length + 1, target.length)
    if drafting.length + 1 > covered:
        raise InvalidInputError(
            f"a round has up to {drafting.length + 1} tokens and the tables cover {covered}: "
            "make tabular models with a greater length"
        )


def round_law(
    draft: TabularModel,
    target: TabularModel,
    drafting: Drafting,
    verification: Verification,
    transform: Transform | None = None,
) -> RoundLaw:
    """Compute the exact distribution of a round by enumeration.

    Parameters
    ----------
    draft, target : TabularModel
        Models with tables for at least L + 1 tokens.
    drafting : Drafting
    verification : Verification
    transform : callable, optional
        Transform of a cascade; compare the result with the distribution of `transformed_model`.

    Returns
    -------
    RoundLaw

    Raises
    ------
    InvalidInputError, UnsupportedProblemError
        If the tables are too short, or for the reasons of `check_round`.

    Notes
    -----
    One verification per draft tree and sequence of decisions: V^(K L) or more.
    """
    check_tabular(draft, target, drafting)
    check_round(draft, target, drafting, verification)
    tally = Tally(transformed_model(draft, target, transform), drafting.length)
    target.start(np.empty(0, dtype=np.int64))
    for tree, mass in draft_trees(draft, drafting):
        laws = apply_transform(
            draft, tree, target.distributions(tree, np.arange(len(tree))), transform
        )
        for outcome, chance in enumerate_choices(partial(verification.verify, tree, laws)):
            tally.add(tree.path(outcome.node).tolist(), mass * chance, outcome.correction)
    return tally.law
