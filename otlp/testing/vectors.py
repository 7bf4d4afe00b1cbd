"""Test vectors for verifiers in any language: cases, answers, and mutants that must fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otlp.auditing import DraftedPaths
from otlp.auditing.audited_round_rule import audited_round_rule
from otlp.auditing.audited_rule import AuditedRule
from otlp.auditing.audited_token_rule import audited_token_rule
from otlp.auditing.enumeration import NotEnumerableError, enumerate_distribution
from otlp.auditing.exact import one_round
from otlp.checks import whole_number
from otlp.distribution import FloatArray, total_variation
from otlp.drafts import IID, WithoutReplacement
from otlp.errors import InvalidInputError
from otlp.testing.lossless import random_laws
from otlp.testing.plain_block import draw
from otlp.testing.plain_rules import MUTANTS, RULES, race

EXAMPLES = 8
"""Number of example rounds with answers per case."""

MOST_ROUNDS = 400
"""Maximum number of random rounds that are searched for a different answer of a mutant."""

MOST_MODELS = 200
"""Maximum number of random models until each mutant has a round with a different answer."""

MOST_NUMBERS = 8
"""Number of uniform numbers per round."""

MOST_PATHS = 100_000
"""Maximum number of paths of an enumeration."""

SIZE = 3
"""Vocabulary size."""

NUMBERS = {
    "speculative": "a coin per token until a token is rejected; a number for the last token",
    "block": "a coin for the whole path; a coin per shorter prefix, the longest first, except the "
    "empty prefix and prefixes with an empty residual; a number for the last token",
    "recursive-rejection": "a coin per draft until one is accepted; if none is, a last number",
    "recursive-rejection-without-replacement": "as recursive-rejection",
    "k-seq": "as recursive-rejection",
    "two-slice": "two per path: the step of its score, the position in the step; then as block",
    "coupled": "one per token of the vocabulary: waiting times -log(u) / p, and / q for the draft",
}
"""Use of the uniform numbers, in order.

A coin u accepts if u q < p.  A token is drawn by inversion: the first token whose cumulative weight
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
"""Shape of the drafted tokens: (n,) drafts of one token, or (K, L) for K paths of L tokens."""


@dataclass(frozen=True)
class Case:
    """A rule with a target and a draft model.

    Attributes
    ----------
    rule : str
        Name of the rule in `RULES`.
    target, draft : sequence of ndarray
        Distributions after prefixes of 0, 1, ... tokens.
    """

    rule: str
    target: Sequence[FloatArray]
    draft: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the drafted tokens."""
        return SHAPES[self.rule]

    def audited_rule(self, mistake: str = "") -> AuditedRule:
        """Return the rule, optionally with a mistake, for an audit."""
        rule = RULES[self.rule]

        def verify(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
            tokens = rule(draft_tokens.tolist(), p.tolist(), q.tolist(), rng.random, mistake)
            return tokens if draft_tokens.ndim > 1 else tokens[0]

        if len(self.shape) == 2:
            paths = DraftedPaths(*self.shape)
            return audited_round_rule(verify, self.target, self.draft, paths, None, None, self.rule)
        drafts = (WithoutReplacement if "without" in self.rule else IID)(self.draft[0], *self.shape)
        return audited_token_rule(verify, self.target[0], drafts, None, None)

    def draw_round(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a round (p, q, drafts, uniforms) in the format of `otlp audit --command`."""
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
        """Return the tokens that the rule outputs in a round."""
        numbers = iter(line["uniforms"])
        return RULES[self.rule](line["drafts"], line["p"], line["q"], numbers.__next__, mistake)

    def distinguishing_round(self, mistake: str, rng: np.random.Generator) -> dict[str, Any] | None:
        """Return a round in which the mutant's answer differs; None if none is found."""
        for _ in range(MOST_ROUNDS):
            line = self.draw_round(rng)
            right, wrong = self.answer(line), self.answer(line, mistake)
            if right != wrong:
                return {**line, "tokens": right, "mutant": wrong}
        return None


def _repeated(law: FloatArray, depth: int) -> list[FloatArray]:
    return [np.broadcast_to(law, (law.size,) * t + law.shape) for t in range(depth)]


_P, _Q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])

KNOWN = {rule: Case(rule, _repeated(_P, 3), _repeated(_Q, 2)) for rule in ("speculative", "block")}
"""p = (1/3, 2/3) and q = (2/3, 1/3): 10/9 tokens accepted on average, 11/9 with block."""


def distinguishing_case(rule: str, seed: int) -> tuple[Case, dict[str, dict[str, Any]]]:
    """Return a case, and for each mutant of the rule a round in which its answer differs.

    Raises
    ------
    InvalidInputError
        If `MOST_MODELS` models of this seed are not enough, which is not known to happen.
    """
    rng = np.random.default_rng((seed, list(RULES).index(rule)))
    depth = SHAPES[rule][1] if len(SHAPES[rule]) == 2 else 1
    for _ in range(MOST_MODELS):
        target, draft = (
            [random_laws(rng, SIZE, t, [*range(SIZE)]) for t in range(d)]
            for d in (depth + 1, depth)
        )
        case = Case(rule, target, draft)
        found = {mistake: case.distinguishing_round(mistake, rng) for mistake in MUTANTS[rule]}
        rounds = {mistake: line for mistake, line in found.items() if line is not None}
        if len(rounds) == len(found):
            return case, rounds
    raise InvalidInputError(f"seed is {seed}: no test of all mutants of {rule} found; pass another")


def make_vectors(seed: int = 0) -> dict[str, Any]:
    """Return test vectors: cases of seven rules with exact laws, answers, and mutants.

    Parameters
    ----------
    seed : int
        Random seed of models, drafts and numbers.  For every seed, each mutant (a rule with a
        mistake) has an example with a different answer.

    Returns
    -------
    dict
        JSON-serializable, in the format of docs/schemas/otlp.json.

    Raises
    ------
    InvalidInputError
        If no case of this seed distinguishes all mutants, which is not known to happen.

    Notes
    -----
    Takes a few seconds, because the laws are enumerated exactly.

    Examples
    --------
    >>> from otlp.testing import make_vectors
    >>> cases = {case["rule"]: case for case in make_vectors()["cases"]}
    >>> [mutant["name"] for mutant in cases["k-seq"]["mutants"]]
    ['no division by rho', 'residual of one draft']
    """
    whole_number(seed, "seed", 0)
    cases: list[tuple[Case, Mapping[str, Any]]] = [(case, {}) for case in KNOWN.values()]
    cases += [distinguishing_case(rule, seed) for rule in RULES]
    return {"seed": seed, "cases": [_to_dict(case, rounds, seed) for case, rounds in cases]}


def _to_dict(case: Case, rounds: Mapping[str, dict[str, Any]], seed: int) -> dict[str, Any]:
    rng, audited = np.random.default_rng(seed), case.audited_rule()
    target = audited.texts()
    examples = []
    for _ in range(EXAMPLES):
        line = case.draw_round(rng)
        examples.append({**line, "tokens": case.answer(line)})
    _, accepted = exact_law(case)
    mutants = []
    for mistake, line in rounds.items():
        wrong, _ = exact_law(case, mistake)
        error = None if wrong is None else total_variation(wrong, target)
        mutants.append(
            {"name": mistake, "verdict": "NOT_LOSSLESS", "total_variation": error, "example": line}
        )
    return {
        "rule": case.rule,
        "drafting": "coupled" if case.rule == "coupled" else audited.drafted,
        "uniforms": NUMBERS[case.rule],
        "target": [table.tolist() for table in case.target[: len(audited.target)]],
        "draft": [table.tolist() for table in case.draft],
        "text_law": target.tolist(),
        "accepted": accepted,
        "examples": examples,
        "mutants": mutants,
    }


def exact_law(case: Case, mistake: str = "") -> tuple[FloatArray | None, float | None]:
    """Return the law of texts and the mean number of accepted tokens; None if not enumerable."""
    if case.rule == "coupled":
        return _coupled_law(case, mistake)
    audited, rng = case.audited_rule(mistake), np.random.default_rng(0)
    try:
        found = enumerate_distribution(one_round(audited), MOST_PATHS, rng, repetitions=0)
    except NotEnumerableError:
        return None, None
    outputs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    accepted = 0.0
    for (tokens, output), weight in found.weights.items():
        assert isinstance(output, tuple), "the plain rules do not fail"
        outputs[output] += weight
        several = len(audited.target) > 1
        accepted += weight * (len(output) - 1 if several else audited.accepted(tokens, output))
    return audited.completed(outputs), accepted


def _coupled_law(case: Case, mistake: str) -> tuple[FloatArray, float]:
    """Return the exact law of `coupled`: both races end in i with 1 / sum max(p / p_i, q / q_i)."""
    p, q = case.target[0], case.draft[0]
    both = 1.0 / np.maximum(p / p[:, None], q / q[:, None]).sum(axis=1)
    laws = {"": p, "winner of the race of q": q}
    return laws.get(mistake, both + (1.0 - both.sum()) * p), float(both.sum())
