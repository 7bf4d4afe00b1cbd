"""Which tree to draft: schemes compared on the same text, chosen on other text.

The target writes texts; every scheme is then valued along them by text renewal, with what both
models said there: no scheme decodes, and differences between them are paired.  Rules that accept
by the distributions along a path alone are exact; recursive rejection and traversal sample the
siblings that they reject; a deterministic tree is drafted at each place where a round begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from otlp.checks import whole_number
from otlp.data.captures import Capture
from otlp.decode.design import (
    FAMILIES,
    Candidate,
    Renewal,
    Statistics,
    WrittenText,
    best_static_tree,
    design,
    top_tree_renewal,
    tournament_profile,
)
from otlp.decode.drafting import Drafting, ShapedDrafting, TopTree, tree_shape
from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.tree import ROOT, TokenTree
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.studies.capturing import DECODED, source_of, writing
from otlp.studies.estimate import Estimate, rate_ratio
from otlp.studies.profiles import (
    acceptance_by_try,
    greedy_profile,
    rejection_profile,
    top_down_profile,
)

MOST_TRIES = 16
"""Siblings of Sequoia's tree, at most."""


def write_text(
    draft: Model, target: Model, prompt: IntArray, tokens: int, rng: np.random.Generator
) -> WrittenText:
    """Let the target write, and keep what both models say; one call of each a token.

    The text has `tokens` tokens, or ends with an end token before.

    Raises
    ------
    InvalidInputError
        If `tokens` is less than 1, or prompt and text do not fit into a model's context.
    """
    check_pair(draft, target)
    whole_number(tokens, "tokens")
    for model in (draft, target):
        if model.context_limit is not None and prompt.size + tokens > model.context_limit:
            raise InvalidInputError(
                f"a prompt of {prompt.size} tokens and {tokens} more exceed the context of "
                f"{model.name}, {model.context_limit}: shorten the prompt or the text"
            )
    steps = [
        (token, p, draft.distributions(ROOT, np.array([0]))[0])
        for token, p in writing(draft, target, prompt, tokens, rng)
    ]
    written, p, q = (np.stack(some) for some in zip(*steps, strict=True))
    return WrittenText(written, p, q)


def drafted_anew(text: WrittenText, draft: Model) -> WrittenText:
    """The same text with what a draft at its beginning says along it; one call."""
    places = np.arange(len(text))
    along = TokenTree(np.append(-1, text.tokens[:-1]), places - 1)
    return replace(text, drafts=draft.distributions(along, places))


def captured_texts(
    capture: Capture,
    temperature: float = 1.0,
    top_k: int | None = None,
    draft_temperature: float | None = None,
) -> Iterator[WrittenText]:
    """The texts of a capture: runs of rows whose positions follow each other.

    Parameters
    ----------
    capture : Capture
        Of text that the target wrote at this temperature, as ``otlp capture`` makes it, with the
        next tokens.
    temperature, top_k, draft_temperature
        See `Capture.distributions`.

    Raises
    ------
    InvalidInputError
        If rows have no positions or next tokens, or the capture says that its text was written
        with another sampling.
    """
    wanted = source_of(Sampling(temperature, top_k))
    if capture.source.startswith(f"{DECODED} at ") and capture.source != wanted:
        raise InvalidInputError(
            f"the capture holds {capture.source}, and text renewal needs {wanted}: give the "
            "sampling that the text was written with, or capture such a text"
        )
    positions, tokens = np.asarray(capture.positions), np.asarray(capture.next_tokens)
    if not tokens.size or tokens.min() < 0 or positions.min() < 0:
        raise InvalidInputError(
            "the capture does not say which tokens its text goes on with: make one with otlp "
            "capture"
        )
    ends = np.flatnonzero(np.diff(positions) != 1) + 1
    for rows in np.split(np.arange(tokens.size), ends):
        pairs = [
            capture.distributions(int(row), temperature, draft_temperature, top_k) for row in rows
        ]
        p, q = (np.stack(some) for some in zip(*pairs, strict=True))
        yield WrittenText(tokens[rows], p, q)


def long_texts(
    texts: Sequence[WrittenText], length: int, least: int, say: Callable[[str], object]
) -> list[WrittenText]:
    """The texts that are longer than a path; says how many are not.

    Raises
    ------
    InvalidInputError
        If fewer than `least` are.
    """
    long = [text for text in texts if len(text) > length]
    if len(long) < least:
        raise InvalidInputError(
            f"{len(long)} of {len(texts)} texts are longer than the longest path, {length} tokens, "
            f"and {least} must be: give more prompts, longer texts or shorter paths"
        )
    if len(long) < len(texts):
        say(f"{len(texts) - len(long)} of {len(texts)} texts are shorter than {length + 1} tokens")
    return long


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


def schemes(
    statistics: Statistics,
    texts: Sequence[WrittenText],
    nodes: int,
    length: int,
    rng: np.random.Generator,
) -> list[Scheme]:
    """What to compare at a budget of N nodes, each at its choice on the same text.

    Parameters
    ----------
    statistics : Statistics
        Of `texts`.
    texts : sequence of WrittenText
        For the choice of Sequoia's tree.
    nodes, length : int
        N, and the longest path.
    rng : numpy.random.Generator
    """

    def of(name: str, one: Candidate) -> Scheme:
        return Scheme(
            name, one.drafting, one.verification, one.nodes, one.efficiency, one.draft_temperature
        )

    def chosen(name: str, *families: str) -> Scheme:
        return of(name, design(statistics, nodes, families=families).candidate)

    one = [c for c in statistics.candidates if c.family == "paths" and c.parameters[0] == 1]
    chain = max((c for c in one if c.nodes <= nodes), key=lambda c: c.efficiency)
    tries = acceptance_by_try(texts, min(MOST_TRIES, nodes), rng)
    shape, worth = best_static_tree(tries.clip(0.0, 1.0).tolist(), nodes, min(length, nodes))
    sequoia = tree_shape(shape)
    return [
        of("chain, block", chain),
        chosen("i.i.d. paths, two-slice", "paths"),
        chosen("delayed paths, tournament", "delayed"),
        chosen("prefix tree, tournament", "tree"),
        chosen("mixed nodes, tournament", "mixed", "mixed-shape"),
        chosen("adaptive branching, tournament", "adaptive-branching"),
        chosen("adaptive depth, tournament", "adaptive-depth"),
        chosen("recommended", *(family for family in FAMILIES if family != "adaptive-depth")),
        Scheme("Sequoia, recursive rejection", sequoia, "recursive-rejection", nodes, 1.0 + worth),
        Scheme("Sequoia's tree, traversal", sequoia, "traversal", nodes),
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
