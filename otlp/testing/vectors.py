"""Test vectors for verifiers in any language: cases, right answers, and mistakes that must fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import DraftedPaths
from otlp.auditing.enumeration import NotEnumerableError, enumerate_distribution
from otlp.auditing.round_subject import round_subject
from otlp.auditing.subject import Subject
from otlp.auditing.token_subject import token_subject
from otlp.checks import whole_number
from otlp.distribution import FloatArray, total_variation
from otlp.drafts import IID, WithoutReplacement
from otlp.errors import InvalidInputError
from otlp.testing.plain_block import draw
from otlp.testing.plain_rules import MUTANTS, RULES, race

GRAIN = 64
"""Probabilities are whole multiples of 1/64: the same numbers in every precision."""

EXAMPLES = 8
"""Drafts and numbers with their answer, of each case."""

TRIES = 400
"""Random drafts and numbers among which one is looked for that tells a mistake."""

MODELS = 200
"""Models that are tried until every mistake is told."""

MOST_NUMBERS = 8
"""Uniform numbers of a round."""

MOST_PATHS = 100_000

SIZE = 3
"""Tokens of the vocabulary."""

NUMBERS = {
    "speculative": "a coin a token until one is rejected; one for the last token",
    "block": "a coin for the whole path; one a shorter prefix from the longest on, but none for "
    "the empty one, nor where its residual is empty; one for the last token",
    "recursive-rejection": "a coin a draft until one is accepted; one for a token that is none",
    "recursive-rejection-without-replacement": "as recursive-rejection",
    "k-seq": "as recursive-rejection",
    "two-slice": "for each path two, the step of its score and the place on it; then as block",
    "coupled": "one a token of the vocabulary: waiting times -log(u) / p, and / q for the draft",
}
"""What the uniform numbers are used for, in order.

A coin u accepts where u q < p; a token is drawn by inversion, the first whose cumulative weight
exceeds u times the sum of the weights."""

SHAPES: dict[str, tuple[int, ...]] = {
    "speculative": (1, 2),
    "block": (1, 2),
    "recursive-rejection": (2,),
    "recursive-rejection-without-replacement": (2,),
    "k-seq": (2,),
    "two-slice": (2, 1),
    "coupled": (1,),
}
"""n drafts at one place, or K paths of L tokens."""


@dataclass(frozen=True)
class Case:
    """A rule on models: over one token its p and q, over paths tables of them.

    Attributes
    ----------
    rule : str
    target, draft : sequence of ndarray
        Distributions after prefixes of 0, 1, ... tokens.
    """

    rule: str
    target: Sequence[FloatArray]
    draft: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the drafted tokens."""
        return SHAPES[self.rule]

    def subject(self, mistake: str = "") -> Subject:
        """The rule, with a mistake or none, as an audit takes it."""
        rule = partial(RULES[self.rule], **({"mistake": mistake} if mistake else {}))

        def played(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
            found = rule(draft_tokens.tolist(), p.tolist(), q.tolist(), rng.random)
            return found if draft_tokens.ndim > 1 else found[0]

        if len(self.shape) == 2:
            paths = DraftedPaths(*self.shape)
            return round_subject(played, self.target, self.draft, paths, None, None, self.rule)
        drafts = (WithoutReplacement if "without" in self.rule else IID)(self.draft[0], *self.shape)
        return token_subject(played, self.target[0], drafts, None, None)

    def drawn(self, rng: np.random.Generator) -> dict[str, Any]:
        """A round as `otlp audit --command` sends it: p, q, drafts, numbers."""
        numbers, size = rng.random(MOST_NUMBERS).tolist(), self.target[0].size
        p, q = self.target[0].tolist(), self.draft[0].tolist()
        drafts: list[Any] = []
        if self.rule == "coupled":
            drafts = [race(q, numbers[:size])]
        elif len(self.shape) == 1:
            left = list(q)
            for _ in range(*self.shape):
                drafts.append(draw(left, rng.random))
                if "without" in self.rule:
                    left[drafts[-1]] = 0.0
        else:
            p, q = [], []
            for _ in range(self.shape[0]):
                path: list[int] = []
                q.append([])
                for table in self.draft:
                    q[-1].append(table[tuple(path)].tolist())
                    path.append(draw(q[-1][-1], rng.random))
                p.append([table[tuple(path[:at])].tolist() for at, table in enumerate(self.target)])
                drafts.append(path)
        named = {"p": p, "q": q, "drafts": drafts, "uniforms": numbers}
        return {"vocab_size": size, "shape": list(self.shape), **named}

    def answer(self, line: Mapping[str, Any], mistake: str = "") -> list[int]:
        """What the rule gives in a round."""
        more = {"mistake": mistake} if mistake else {}
        numbers = iter(line["uniforms"])
        return RULES[self.rule](line["drafts"], line["p"], line["q"], numbers.__next__, **more)

    def telling(self, mistake: str, rng: np.random.Generator) -> dict[str, Any] | None:
        """A round in which a mistake answers otherwise; None if none is found."""
        for _ in range(TRIES):
            line = self.drawn(rng)
            right, wrong = self.answer(line), self.answer(line, mistake)
            if right != wrong:
                return {**line, "tokens": right, "mutant": wrong}
        return None


def _repeated(law: FloatArray, depth: int) -> list[FloatArray]:
    return [np.broadcast_to(law, (law.size,) * t + law.shape) for t in range(depth)]


_P, _Q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])

PENCIL = {rule: Case(rule, _repeated(_P, 3), _repeated(_Q, 2)) for rule in ("speculative", "block")}
"""Two tokens of 1/3 and 2/3, drafted the other way round: 10/9 accepted, and 11/9 as a block."""


def told_apart(rule: str, seed: int) -> tuple[Case, dict[str, dict[str, Any]]]:
    """Models on which every mistake of a rule is told, and a round that tells it.

    Raises
    ------
    InvalidInputError
        If `MODELS` models of this seed do not, which is not known to happen.
    """
    rng = np.random.default_rng((seed, list(RULES).index(rule)))
    depth = SHAPES[rule][1] if len(SHAPES[rule]) == 2 else 1
    for _ in range(MODELS):
        target, draft = ([_laws(rng, SIZE, t) for t in range(d)] for d in (depth + 1, depth))
        case = Case(rule, target, draft)
        found = {mistake: case.telling(mistake, rng) for mistake in MUTANTS[rule]}
        told = {mistake: line for mistake, line in found.items() if line is not None}
        if len(told) == len(found):
            return case, told
    raise InvalidInputError(f"seed is {seed}: no models tell the mistakes of {rule}; take another")


def make_vectors(seed: int = 0) -> dict[str, Any]:
    """Cases of seven rules, each with its exact law, answers, and mistakes that must fail.

    Parameters
    ----------
    seed : int
        Of models, drafts and numbers; whatever it is, each mistake is told by an answer.

    Returns
    -------
    dict
        As docs/schemas/otlp.json says, ready for JSON.

    Raises
    ------
    InvalidInputError
        If no models of this seed tell all mistakes, which is not known to happen.

    Notes
    -----
    Some seconds: the laws are followed exactly, each path many times again.

    Examples
    --------
    >>> from otlp.testing import make_vectors
    >>> cases = {case["rule"]: case for case in make_vectors()["cases"]}
    >>> [mutant["name"] for mutant in cases["k-seq"]["mutants"]]
    ['no division by rho', 'residual of one draft']
    """
    whole_number(seed, "seed", 0)
    cases: list[tuple[Case, Mapping[str, Any]]] = [(case, {}) for case in PENCIL.values()]
    cases += [told_apart(rule, seed) for rule in RULES]
    return {"seed": seed, "cases": [_described(case, told, seed) for case, told in cases]}


def _described(case: Case, told: Mapping[str, dict[str, Any]], seed: int) -> dict[str, Any]:
    rng, subject = np.random.default_rng(seed), case.subject()
    target = subject.texts()
    examples = []
    for _ in range(EXAMPLES):
        line = case.drawn(rng)
        examples.append({**line, "tokens": case.answer(line)})
    _, accepted = exact_law(case)
    mutants = []
    for mistake, line in told.items():
        wrong, _ = exact_law(case, mistake)
        apart = None if wrong is None else total_variation(wrong, target)
        mutants.append(
            {"name": mistake, "verdict": "NOT_LOSSLESS", "total_variation": apart, "example": line}
        )
    return {
        "rule": case.rule,
        "drafting": "coupled" if case.rule == "coupled" else subject.drafted,
        "uniforms": NUMBERS[case.rule],
        "target": [table.tolist() for table in case.target[: len(subject.target)]],
        "draft": [table.tolist() for table in case.draft],
        "text_law": target.tolist(),
        "accepted": accepted,
        "examples": examples,
        "mutants": mutants,
    }


def exact_law(case: Case, mistake: str = "") -> tuple[FloatArray | None, float | None]:
    """The law of texts, and the mean number of accepted tokens; None where it is not followed."""
    if case.rule == "coupled":
        return _coupled_law(case, mistake)
    subject = case.subject(mistake)

    def program(source: Any) -> tuple[tuple[int, ...], Any]:
        tokens = subject.draft(1, source)
        return tuple(tokens[0].tolist()), subject.play(tokens, source)[0]

    try:
        found = enumerate_distribution(program, MOST_PATHS, np.random.default_rng(0), repetitions=0)
    except NotEnumerableError:
        return None, None
    outputs: Counter[tuple[int, ...]] = Counter()
    accepted = 0.0
    for (tokens, output), weight in found.weights.items():
        outputs[output] += weight  # type: ignore[assignment]
        several = len(subject.target) > 1
        accepted += weight * (len(output) - 1 if several else subject.accepted(tokens, output))
    return subject.completed(outputs), accepted


def _coupled_law(case: Case, mistake: str) -> tuple[FloatArray, float]:
    """Of two races with the same numbers: both end in i with 1 / sum max(p / p_i, q / q_i)."""
    p, q = case.target[0], case.draft[0]
    both = 1.0 / np.maximum(p / p[:, None], q / q[:, None]).sum(axis=1)
    laws = {"": p, "the draft's own race": q}
    return laws.get(mistake, both + (1.0 - both.sum()) * p), float(both.sum())


def _laws(rng: np.random.Generator, size: int, length: int) -> FloatArray:
    shares = rng.dirichlet(np.ones(size), size**length)
    whole = 1 + np.array([rng.multinomial(GRAIN - size, share) for share in shares])
    return (whole / GRAIN).reshape((size,) * (length + 1))
