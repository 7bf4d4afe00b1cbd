"""Audit of schedules, which choose how many drafted tokens of each request are verified.

A schedule may use everything that is known before a token is drawn.  If the choice depends on the
token itself or on later drafts, the schedule selects tokens, and the text does not follow the
target, for any verifier.  The audit plays two requests (a schedule may use the other request) and
several steps (a schedule may use earlier steps).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing.audited_round_rule import (
    MOST_TEXTS,
    PADDING,
    AuditedRoundRule,
    audited_round_rule,
)
from otlp.auditing.audited_rule import Failure, Output, draw_rows, name_of, raised
from otlp.auditing.drafted_tree import DraftedPaths
from otlp.checks import whole_number
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError, SizeLimitError, one_line

Drafted: TypeAlias = tuple[IntArray, FloatArray]
"""Tokens of a step, shape (requests, L), and their q, shape (requests, L, V)."""

Schedule: TypeAlias = Callable[[IntArray, FloatArray, Sequence[Drafted]], Any]
"""``schedule(draft_tokens, q, earlier) -> lengths``, of shape (requests,)."""

REQUESTS = 2

MOST_DRAFTS = 10_000
"""Maximum number of drafts of a step that are searched for an example."""


@dataclass(frozen=True, eq=False)
class Scheduled(AuditedRoundRule):
    """A rule over the scheduled prefixes of the paths of two requests.

    An output has L + 1 padded positions for each request and step; a text is the whole output.

    Attributes
    ----------
    by_length : sequence of AuditedRoundRule
        The rule over 1, ..., L tokens.
    schedule : callable
    steps : int
    """

    by_length: Sequence[AuditedRoundRule]
    schedule: Schedule
    steps: int

    @property
    def length(self) -> int:
        """Length of a drafted path, L."""
        return len(self.by_length)

    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Schedule and verify the steps of each row in sequence."""
        return [self._follow(row.reshape(self.steps, REQUESTS, -1), rng) for row in tokens]

    def _follow(self, drafts: IntArray, rng: Any) -> Output:
        earlier: list[Drafted] = []
        text: list[int] = []
        for paths in drafts:
            lengths = self.lengths(paths, earlier)
            if isinstance(lengths, Failure):
                return lengths
            for path, length in zip(paths, lengths, strict=True):
                if length:
                    output = self.by_length[length - 1].play(path[None, :length], rng)[0]
                else:
                    output = (int(draw_rows(self.target[0], rng)[0]),)
                if isinstance(output, Failure):
                    return output
                text += [*output, *[PADDING] * (self.length + 1 - len(output))]
            earlier.append(self._drafted(paths))
        return tuple(text)

    def _drafted(self, paths: IntArray) -> Drafted:
        q = self.by_length[-1].drafts.at_nodes(self.draft_tables, paths)
        return paths.copy(), q[:, : self.length]

    def lengths(self, paths: IntArray, earlier: Sequence[Drafted]) -> list[int] | Failure:
        """Return the number of tokens to verify of each path, or a Failure."""
        try:
            found = np.asarray(self.schedule(*self._drafted(paths), tuple(earlier)))
        except (Exception, SystemExit) as error:
            return Failure(f"the schedule {raised(error)}")
        if found.shape != (REQUESTS,) or found.dtype.kind not in "iu":
            return Failure(f"the schedule returns {one_line(found)}, not {REQUESTS} lengths")
        if found.min() < 0 or found.max() > self.length:
            return Failure(
                f"the schedule returns {found.tolist()}, not lengths from 0 to {self.length}"
            )
        lengths: list[int] = found.tolist()
        return lengths

    def token_count(self, output: tuple[int, ...]) -> float:
        """Return the number of tokens per round, the mean over requests and steps."""
        return (len(output) - output.count(PADDING)) / (REQUESTS * self.steps)

    def completed(self, outputs: Mapping[tuple[int, ...], float]) -> FloatArray:
        """Return the joint law of all texts, each completed by the target."""
        law = cache(lambda text: self.by_length[-1].completed({text: 1.0}))
        whole = np.zeros(self.vocab_size ** len(self.target))
        for output, weight in outputs.items():
            texts = list(self._texts(output)) or [()] * REQUESTS * self.steps
            joint = np.ones(1)
            for text in texts:
                joint = np.outer(joint, law(text)).ravel()
            whole += weight * joint
        return whole

    def cells(self, outputs: Sequence[Output], rng: np.random.Generator) -> IntArray:
        """Return the index of the texts of each row, each completed by the target."""
        right = [output for output in outputs if not isinstance(output, Failure)]
        texts = [text for output in right for text in self._texts(output)]
        found = self.by_length[-1].cells(texts, rng).reshape(len(right), REQUESTS * self.steps)
        size = self.vocab_size ** (self.length + 1)
        index = np.full(len(outputs), size ** (REQUESTS * self.steps))
        powers = size ** np.arange(REQUESTS * self.steps)[::-1]
        index[[not isinstance(output, Failure) for output in outputs]] = found @ powers
        return index

    def _texts(self, output: Sequence[int]) -> Iterator[tuple[int, ...]]:
        for start in range(0, len(output), self.length + 1):
            text = output[start : start + self.length + 1]
            yield tuple(token for token in text if token != PADDING)

    def example(self) -> str:
        """Return a description of two drafts that show what the schedule depends on."""
        size, places = self.vocab_size, REQUESTS * self.length
        seen: dict[tuple[int, ...], tuple[bool, IntArray]] = {}
        for tokens in itertools.islice(itertools.product(range(size), repeat=places), MOST_DRAFTS):
            paths = np.array(tokens).reshape(REQUESTS, -1)
            lengths = self.lengths(paths, ())
            if isinstance(lengths, Failure):
                continue
            for request, at in itertools.product(range(REQUESTS), range(self.length)):
                known = paths.copy()
                known[request, at:] = PADDING  # Tokens that are not drawn yet.
                verified = lengths[request] > at
                key = request, at, *known.ravel().tolist()
                before, other = seen.setdefault(key, (verified, paths))
                if before != verified:
                    yes, no = (paths, other) if verified else (other, paths)
                    return (
                        f"token {at + 1} of request {request + 1} is verified if the drafts are "
                        f"{yes.tolist()}, but not if the drafts are {no.tolist()}"
                    )
        cause = "the schedule of each request uses the drafts of the other request"
        return cause if self.steps == 1 else f"{cause}, or a later step uses its own drafts"


def scheduled(
    rule: Any, target: Any, draft: Any, drafts: Any, schedule: Any, steps: int, name: Any
) -> Scheduled:
    """Check the arguments of `otlp.audit_rounds` with a schedule."""
    if not callable(schedule):
        raise InvalidInputError(f"schedule is a {type(schedule).__name__}: pass a callable")
    if not isinstance(drafts, DraftedPaths) or drafts.paths != 1:
        raise InvalidInputError(f"drafts is {drafts}: a schedule needs DraftedPaths(1, length)")
    steps = whole_number(steps, "steps", 1)
    by_length = [
        audited_round_rule(rule, target, draft, DraftedPaths(1, length), None, None, name)
        for length in range(1, drafts.length + 1)
    ]
    longest = by_length[-1]
    blocks = REQUESTS * steps
    if float(longest.vocab_size) ** (blocks * len(longest.target)) > MOST_TEXTS:
        raise SizeLimitError(
            f"there are {longest.vocab_size}^{blocks * len(longest.target)} texts of {REQUESTS} "
            f"requests in {steps} steps, more than {MOST_TEXTS:,}: use a smaller vocabulary, "
            "shorter paths or fewer steps"
        )
    inherited = vars(longest) | {
        "name": f"{longest.name}, scheduled by {name_of(schedule)}",
        "drafted": f"{REQUESTS} requests in {steps} steps, each {drafts}",
        "target": [*longest.target] * blocks,
        "drafts": DraftedPaths(blocks, drafts.length),
    }
    return Scheduled(**inherited, by_length=by_length, schedule=schedule, steps=steps)
