"""The exact law of a round on tabular models, by enumeration: validity and block efficiency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import otlp
from otlp.decode.choosing import enumerate_choices
from otlp.decode.drafting import Drafting
from otlp.decode.round import Transform, aim, check_round
from otlp.decode.tabular import TabularModel
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.path_selection import PathSelection
from otlp.decode.verification.top_down import TopDown
from otlp.decode.verification.verification import Verification
from otlp.distribution import FloatArray

__all__ = [
    "RoundLaw",
    "aimed_model",
    "draft_trees",
    "round_law",
    "selection_efficiency",
    "top_down_efficiency",
]


@dataclass(frozen=True, eq=False)
class RoundLaw:
    """What a round does on average over drafts and decisions.

    Attributes
    ----------
    tokens : ndarray, shape (V, ..., V), L + 1 axes
        Law of the next L + 1 tokens: those of the round, then tokens sampled from the target.
    lengths : ndarray, shape (L + 1,)
        Law of the number of accepted tokens.
    """

    tokens: FloatArray
    lengths: FloatArray

    @property
    def block_efficiency(self) -> float:
        """Mean number of tokens a round: accepted ones and the correction."""
        return 1.0 + float(self.lengths @ np.arange(self.lengths.size))


def draft_trees(draft: TabularModel, drafting: Drafting) -> Iterator[tuple[DraftTree, float]]:
    """All draft trees that a drafting can make from the empty context, with probabilities."""
    draft.start(np.empty(0, dtype=np.int64))
    return enumerate_choices(lambda chooser: drafting.draft(draft, chooser))


def aimed_model(
    draft: TabularModel, target: TabularModel, transform: Transform | None
) -> TabularModel:
    """The model that a cascade decodes from, as one tabular model; the target without one."""
    if transform is None:
        return target
    tables = []
    for q, p in zip(draft.tables, target.tables, strict=False):
        size = q.shape[-1]
        pairs = zip(q.reshape(-1, size), p.reshape(-1, size), strict=True)
        rows = [transform(a, b) for a, b in pairs]
        tables.append(np.stack(rows).reshape(q.shape))
    return TabularModel(tables, f"{draft.name} and {target.name}")


def round_law(
    draft: TabularModel,
    target: TabularModel,
    drafting: Drafting,
    verification: Verification,
    transform: Transform | None = None,
) -> RoundLaw:
    """Enumerate a round.

    Parameters
    ----------
    draft, target : TabularModel
        With tables for at least L + 1 tokens.
    drafting : Drafting
    verification : Verification
    transform : callable, optional
        A cascade's transform; the law is then to be compared with `aimed_model`'s.

    Returns
    -------
    RoundLaw

    Raises
    ------
    InvalidInputError, UnsupportedProblemError
        See `check_round`.

    Notes
    -----
    One verification for each draft tree and each sequence of decisions: V^(K L) and more.
    """
    check_round(draft, target, drafting, verification)
    length = drafting.length
    aimed = aimed_model(draft, target, transform)
    joint = aimed.joint(length + 1)
    tokens = np.zeros_like(joint)
    lengths = np.zeros(length + 1)
    target.start(np.empty(0, dtype=np.int64))
    for tree, mass in draft_trees(draft, drafting):
        laws = aim(draft, tree, target.laws(tree, np.arange(len(tree))), transform)

        def run(chooser, tree=tree, laws=laws):  # type: ignore[no-untyped-def]
            return verification.verify(tree, laws, chooser)

        for outcome, chance in enumerate_choices(run):
            depth = int(tree.depths[outcome.node])
            lengths[depth] += mass * chance
            prefix = tuple(tree.path(outcome.node).tolist())
            # the correction, then what the target adds, by its law after each correction
            rest = joint[prefix]
            total = rest.reshape(rest.shape[0], -1).sum(axis=1)
            scale = np.divide(
                outcome.correction, total, out=np.zeros_like(total), where=total > 0.0
            )
            shape = (-1,) + (1,) * (rest.ndim - 1)
            tokens[prefix] += mass * chance * rest * scale.reshape(shape)
    return RoundLaw(tokens, lengths)


def selection_efficiency(
    draft: TabularModel,
    target: TabularModel,
    selection: PathSelection[Any],
    paths: int,
    length: int,
) -> float:
    """Exact block efficiency of a path selection: 1 + sum of accepted masses over all prefixes.

    A prefix x is accepted with probability Gamma(x) w(x) (Sun et al. 2024, Lemma 4); every prefix
    is visited once, so this reaches larger models than `round_law`.

    Parameters
    ----------
    draft, target : TabularModel
        With tables for at least L tokens.
    selection : PathSelection
    paths, length : int
        K and L.
    """

    def accepted(prefix: tuple[int, ...], state: Any, weight: float, gamma: float) -> float:
        if len(prefix) == length:
            return 0.0
        p, q = target.law(prefix), draft.law(prefix)
        skew = selection.skew(state, weight, p, q)
        total = 0.0
        for token in np.flatnonzero(q).tolist():
            skewed = float(q[token]) * skew.ratio(token)
            below = next_weight(weight, float(p[token]), skewed)
            total += gamma * skewed * below
            child = skew.child(token)
            total += accepted((*prefix, token), child, below, gamma * skewed)
        return total

    return 1.0 + accepted((), selection.root(paths), 1.0, 1.0)


def top_down_efficiency(
    draft: TabularModel, target: TabularModel, top_down: TopDown, paths: int, length: int
) -> float:
    """Exact block efficiency of top-down verification of K i.i.d. paths.

    Lists the V^n tuples of draws of each prefix and each number n of paths that can be left, not
    the V^(K L) sets of paths: reaches larger models than `round_law`.

    Parameters
    ----------
    draft, target : TabularModel
        With tables for at least L tokens.
    top_down : TopDown
    paths, length : int
        K and L.
    """

    @cache
    def accepted(prefix: tuple[int, ...], n: int) -> float:
        if len(prefix) == length:
            return 0.0
        q = draft.law(prefix)
        plan = top_down.plan(otlp.IID(q, n), target.law(prefix))
        total = 0.0
        for drawn in product(np.flatnonzero(q).tolist(), repeat=n):
            chance = float(np.prod(q[list(drawn)]))
            law = plan.conditional(np.array(drawn))
            for token in set(drawn):
                further = accepted((*prefix, token), drawn.count(token))
                total += chance * float(law[token]) * (1.0 + further)
        return total

    return 1.0 + accepted((), paths)
