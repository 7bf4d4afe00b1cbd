"""Schemes of drafting and verification, evaluated along texts decoded from the target.

Every scheme is evaluated by text renewal from the distributions of both models along the text: no
scheme decodes, and differences between schemes are paired.  Profiles contain A/P, the accepted mass
divided by the target's mass, with one row per position and one column per depth.  Profiles are
exact for rules whose acceptance depends only on the distributions along a path, and for greedy
multi-path, the highest of K i.i.d. paths.  Other rules depend on the drafted siblings of the text's
next token, which are sampled: given that they contain this token for plans at each node, given that
they were rejected for rules that attempt children in order (Sequoia, traversal).  All other steps
are exact, so the estimates are unbiased, and independent for each position.  A deterministic tree
is drafted at each start of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from otlp.decode.drafting import Drafting, ShapedDrafting, TopTree
from otlp.decode.models.model import Model
from otlp.decode.verification import TopDown
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.greedy_multipath import Consecutive, whole_interval
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import IID
from otlp.studies.estimate import Estimate, rate_ratio
from otlp_lab.design import (
    FAMILIES,
    Candidate,
    Renewal,
    Statistics,
    WrittenText,
    design,
    top_tree_renewal,
    tournament_profile,
)
from otlp_lab.design.profiles import profile
from otlp_lab.design.rejection_profiles import rejection_profile

LARGEST = 1.0 - 2.0**-53
"""Largest float64 below 1, so that log(1 - q) is finite."""


def greedy_profile(text: WrittenText, paths: int, length: int) -> FloatArray:
    """Compute exact A/P of K i.i.d. paths of L tokens; first columns are those of shorter paths.

    Parameters
    ----------
    text : WrittenText
    paths, length : int
        Number of paths K and path length L.

    Returns
    -------
    ndarray, shape (T - L, L + 1)

    Notes
    -----
    O(T L V).
    """

    def along(start: int) -> Iterator[float]:
        state, weight, mass = whole_interval(paths), 1.0, 1.0
        for place in range(start, start + length):
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
            if q[token] <= 0.0:
                return
            below = Consecutive(state, p, q)
            skewed = float(q[token]) * below.ratio(token)
            mass *= min(1.0, skewed / (weight * float(p[token])))
            yield mass
            weight = next_weight(weight, float(p[token]), skewed)
            state = below.child(token)

    return profile(text, length, along)


def top_down_profile(
    text: WrittenText,
    drafting: ShapedDrafting,
    length: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Estimate A/P on trees of i.i.d. siblings, with the optimal plan at each node.

    Parameters and result are those of `rejection_profile`, for the kind ``"iid"``.
    """
    rule = TopDown()

    def along(start: int) -> Iterator[float]:
        slots, mass = [0], 1.0
        for place in range(start, start + drafting.length):
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
            below = [child for slot in slots for child in drafting.children[slot]]
            if not below or q[token] <= 0.0:
                return
            chance, siblings = _with_token(q, token, len(below), rng)
            plan = rule.plan(IID(q, siblings.size), p)
            mass = mass * chance * plan.conditional(siblings)[token] / p[token]
            yield mass
            slots = [below[at] for at in np.flatnonzero(siblings == token)]

    return profile(text, length, along)


def _with_token(
    q: FloatArray, token: int, count: int, rng: np.random.Generator
) -> tuple[float, IntArray]:
    """Return the probability that i.i.d. draws contain a token, and such draws given that."""
    missed = np.log1p(-min(float(q[token]), LARGEST))
    chance = -np.expm1(count * missed)
    first = min(int(np.log1p(-chance * rng.random()) / missed), count - 1)
    others = q.copy()
    others[token] = 0.0
    before = invert_cdf(np.cumsum(others), rng.random(first))
    after = invert_cdf(np.cumsum(q), rng.random(count - 1 - first))
    return float(chance), np.concatenate([before, [token], after])


@dataclass(frozen=True)
class Scheme:
    """A drafting and its verification rule.

    Attributes
    ----------
    name : str
    drafting : Drafting
    rule : str
        ``"two-slice"`` (block verification for one path), ``"greedy-multipath"``,
        ``"tournament"``, ``"optimal"``, ``"recursive-rejection"``, ``"traversal"`` or
        ``"target-only"``.
    nodes : float
        Maximum number of drafted tokens per round, or for adaptive depth the mean.
    predicted : float or None
        Tokens per target call on the texts used for its choice.
    draft_temperature : float or None
        Temperature of the draft; None: that of both models.
    """

    name: str
    drafting: Drafting
    rule: str
    nodes: float
    predicted: float | None = None
    draft_temperature: float | None = None


def of(name: str, one: Candidate) -> Scheme:
    """Return the scheme of a candidate."""
    rule = one.verification.name
    return Scheme(name, one.drafting, rule, one.nodes, one.efficiency, one.draft_temperature)


def schemes(statistics: Statistics, nodes: int, length: int) -> list[Scheme]:
    """Return the schemes to compare at a budget of N nodes, with settings chosen by statistics.

    Parameters
    ----------
    statistics : Statistics
    nodes, length : int
        Budget N, and maximum path length.
    """

    def chosen(name: str, *families: str) -> Scheme:
        return of(name, design(statistics, nodes, families=families))

    one = [c for c in statistics.candidates if c.family == "paths" and c.parameters[0] == 1]
    chain = max((c for c in one if c.nodes <= nodes), key=lambda c: c.efficiency)
    traversal = chosen("Sequoia's tree, traversal", "without-replacement")
    rejection = "Sequoia, recursive rejection"
    return [
        of("chain, block", chain),
        chosen("i.i.d. paths, two-slice", "paths"),
        chosen("delayed paths, tournament", "delayed"),
        chosen("prefix tree, tournament", "tree"),
        chosen("mixed nodes, tournament", "mixed", "mixed-shape"),
        chosen("adaptive branching, tournament", "adaptive-branching"),
        chosen("adaptive depth, tournament", "adaptive-depth"),
        chosen(
            "recommended", *(f for f in FAMILIES if f not in ("adaptive-depth", "shared-noise"))
        ),
        replace(traversal, name=rejection, rule="recursive-rejection", predicted=None),
        traversal,
        Scheme("top tree, target-only", TopTree(nodes, min(length, nodes)), "target-only", nodes),
    ]


def value(
    scheme: Scheme,
    texts: Sequence[WrittenText],
    length: int,
    rng: np.random.Generator,
    begun: Callable[[int], tuple[Model, IntArray]] | None = None,
) -> Renewal:
    """Compute tokens and calls of a scheme along texts.

    Parameters
    ----------
    scheme : Scheme
    texts : sequence of WrittenText
        Texts with the draft at the scheme's temperature.
    length : int
        Maximum round length, at least that of the scheme; equal lengths make schemes paired.
    rng : numpy.random.Generator
    begun : callable, optional
        See `gather_statistics`; deterministic trees need it.
    """
    drafting = scheme.drafting
    if scheme.rule == "target-only":
        assert isinstance(drafting, TopTree) and begun is not None
        return top_tree_renewal(begun, texts, drafting, length)
    if scheme.rule in ("tournament", "two-slice"):
        return Renewal.of(tournament_profile(text, drafting, length) for text in texts)
    assert isinstance(drafting, ShapedDrafting)
    if scheme.rule == "greedy-multipath":
        kept = drafting.length + 1
        return Renewal.of(greedy_profile(t, drafting.paths, length)[:, :kept] for t in texts)
    if scheme.rule == "optimal":
        return Renewal.of(top_down_profile(text, drafting, length, rng) for text in texts)
    assert scheme.rule in ("traversal", "recursive-rejection"), scheme.rule
    rule = scheme.rule
    return Renewal.of(rejection_profile(text, drafting, length, rule, rng) for text in texts)  # type: ignore[arg-type]


def gain(one: Renewal, other: Renewal) -> Estimate:
    """Estimate the relative gain in tokens per call over another scheme on the same texts."""
    sums = (np.array(part) for each in (one, other) for part in (each.tokens, each.calls))
    found = rate_ratio(*sums)
    return Estimate(found.mean - 1.0, found.low - 1.0, found.high - 1.0)
