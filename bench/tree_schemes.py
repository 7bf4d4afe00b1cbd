"""Schemes of drafting and verification, valued along texts that the target wrote.

Every scheme is valued by text renewal, with what both models said along the text: no scheme
decodes, and differences between them are paired.  Profiles hold A/P, the accepted mass over the
target's: a row for each place, by depth.  Rules that accept by the distributions along a path alone
are exact, greedy multi-path too, the highest of K i.i.d. paths.  Others depend on the siblings that
were drafted with the text's next token, and these are sampled: given that it is among them where a
plan at each node says which token goes on, given that they were rejected where children are tried
in order (Sequoia, traversal).  Everything else is exact: unbiased estimates, independent for each
place.  A deterministic tree is drafted at each place where a round begins.
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
"""A probability below 1: the logarithm of what it leaves is finite."""


def greedy_profile(text: WrittenText, paths: int, length: int) -> FloatArray:
    """A/P of K i.i.d. paths of L tokens, exact; the first columns are those of shorter paths.

    Parameters
    ----------
    text : WrittenText
    paths, length : int
        K and L.

    Returns
    -------
    ndarray, shape (T - L, L + 1)

    Notes
    -----
    O(T L) steps, at O(V) each.
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
    """Estimate A/P on trees whose siblings are i.i.d., with the optimum's plan at each node.

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
    """Chance that i.i.d. draws hold a token, and such draws, given that they do."""
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
    """A drafting and the rule that verifies it.

    Attributes
    ----------
    name : str
    drafting : Drafting
    rule : str
        ``"two-slice"`` (block verification for one path), ``"greedy-multipath"``,
        ``"tournament"``, ``"optimal"``, ``"recursive-rejection"``, ``"traversal"`` or
        ``"target-only"``.
    nodes : float
        Drafted tokens a round: the most, or for adaptive depth the mean.
    predicted : float or None
        Tokens a target call on the text that it was chosen on.
    draft_temperature : float or None
        Of the draft alone; None is that of both models.
    """

    name: str
    drafting: Drafting
    rule: str
    nodes: float
    predicted: float | None = None
    draft_temperature: float | None = None


def schemes(statistics: Statistics, nodes: int, length: int) -> list[Scheme]:
    """What to compare at a budget of N nodes, each at its choice on the statistics' text.

    Parameters
    ----------
    statistics : Statistics
    nodes, length : int
        N, and the longest path.
    """

    def of(name: str, one: Candidate) -> Scheme:
        rule = one.verification.name
        return Scheme(name, one.drafting, rule, one.nodes, one.efficiency, one.draft_temperature)

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
    """Tokens and calls of a scheme along texts.

    Parameters
    ----------
    scheme : Scheme
    texts : sequence of WrittenText
        With the draft at the scheme's temperature.
    length : int
        At least the scheme's; schemes valued with the same one are paired.
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
    """How much more tokens a call one gives than another on the same texts, as a part of it."""
    sums = (np.array(part) for each in (one, other) for part in (each.tokens, each.calls))
    found = rate_ratio(*sums)
    return Estimate(found.mean - 1.0, found.low - 1.0, found.high - 1.0)


def blended(text: WrittenText, share: float) -> WrittenText:
    """The same text with a part of the target in the draft, as a `Mixture` of both has it."""
    return replace(text, drafts=(1.0 - share) * text.drafts + share * text.targets)
