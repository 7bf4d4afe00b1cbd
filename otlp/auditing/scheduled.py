"""Schedules: how many drafted tokens of each request are verified, decided from all drafts.

A decision may look at what is known before a token is drawn, and at other requests; where it looks
at the token itself, or at what was drafted after it, it picks the tokens that are verified, and the
text is not the target's whatever verifies it.  Two requests show it, and steps that follow show
what is carried from one to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing.drafted_tree import DraftedPaths
from otlp.auditing.round_subject import MOST_TEXTS, PADDING, RoundSubject, round_subject
from otlp.auditing.subject import Failure, Output, draw_rows, name_of, one_line, raised
from otlp.checks import whole_number
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError, SizeLimitError

Drafted: TypeAlias = tuple[IntArray, FloatArray]
"""Tokens of a step, shape (requests, L), and their q, shape (requests, L, V)."""

Schedule: TypeAlias = Callable[[IntArray, FloatArray, Sequence[Drafted]], Any]
"""``schedule(draft_tokens, q, earlier) -> lengths``, of shape (requests,)."""

REQUESTS = 2

MOST_DRAFTS = 10_000
"""Drafts of a step among which an example is looked for."""


@dataclass(frozen=True, eq=False)
class Scheduled(RoundSubject):
    """A rule over the part of a path that a schedule lets through, of two requests at a time.

    Its outputs hold L + 1 places for each request and step, padded; a text is all of them.

    Attributes
    ----------
    by_length : sequence of RoundSubject
        The rule over 1, ..., L tokens.
    schedule : callable
    steps : int
    """

    by_length: Sequence[RoundSubject]
    schedule: Schedule
    steps: int

    @property
    def length(self) -> int:
        """Tokens of a drafted path, L."""
        return len(self.by_length)

    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Schedule and verify the steps of each row, one after the other."""
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
            earlier.append(self._told(paths))
        return tuple(text)

    def _told(self, paths: IntArray) -> Drafted:
        q = self.by_length[-1].drafts.at_nodes(self.draft_tables, paths)
        return paths.copy(), q[:, : self.length]

    def lengths(self, paths: IntArray, earlier: Sequence[Drafted]) -> list[int] | Failure:
        """How many tokens of each path are verified."""
        try:
            found = np.asarray(self.schedule(*self._told(paths), tuple(earlier)))
        except (Exception, SystemExit) as error:
            return Failure(f"the schedule {raised(error)}")
        if found.shape != (REQUESTS,) or found.dtype.kind not in "iu":
            return Failure(f"the schedule returns {one_line(found)}, not {REQUESTS} lengths")
        if found.min() < 0 or found.max() > self.length:
            return Failure(
                f"the schedule returns {found.tolist()}, of {self.length} drafted tokens each"
            )
        lengths: list[int] = found.tolist()
        return lengths

    def given(self, output: tuple[int, ...]) -> float:
        """Tokens that a round gives, in the mean over requests and steps."""
        return (len(output) - output.count(PADDING)) / (REQUESTS * self.steps)

    def completed(self, outputs: Mapping[tuple[int, ...], float]) -> FloatArray:
        """The joint law of all texts, each continued by the target."""
        laws: dict[tuple[int, ...], FloatArray] = {}
        whole = np.zeros(self.vocab_size ** len(self.target))
        for output, weight in outputs.items():
            texts = [tuple(text) for text in self._texts(output)] or [()] * REQUESTS * self.steps
            for text in texts:
                if text not in laws:
                    laws[text] = self.by_length[-1].completed({text: 1.0})
            joint = np.ones(1)
            for text in texts:
                joint = np.outer(joint, laws[text]).ravel()
            whole += weight * joint
        return whole

    def cells(self, outputs: Sequence[Output], rng: np.random.Generator) -> IntArray:
        """The texts of each row as one number, each continued by the target."""
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
        """Two drafts that tell what the schedule looks at, in words."""
        size, places = self.vocab_size, REQUESTS * self.length
        seen: dict[tuple[int, ...], tuple[bool, IntArray]] = {}
        for tokens in itertools.islice(itertools.product(range(size), repeat=places), MOST_DRAFTS):
            paths = np.array(tokens).reshape(REQUESTS, -1)
            lengths = self.lengths(paths, ())
            if isinstance(lengths, Failure):
                continue
            for request, at in itertools.product(range(REQUESTS), range(self.length)):
                known = paths.copy()
                known[request, at:] = PADDING  # what is not drawn yet
                admitted = lengths[request] > at
                was, other = seen.setdefault(
                    (request, at, *known.ravel().tolist()), (admitted, paths)
                )
                if was != admitted:
                    yes, no = (paths, other) if admitted else (other, paths)
                    return (
                        f"token {at + 1} of request {request + 1} is verified where the drafts "
                        f"are {yes.tolist()}, and not where they are {no.tolist()}"
                    )
        cause = "of each of two requests it looks at what the other drew"
        if self.steps == 1:
            return cause
        return f"{cause}, or in a later step at what is drawn there"


def scheduled(
    rule: Any, target: Any, draft: Any, drafts: Any, schedule: Any, steps: int, name: Any
) -> Scheduled:
    """Check what `otlp.audit_rounds` is given beside a schedule."""
    if not callable(schedule):
        raise InvalidInputError(f"schedule is a {type(schedule).__name__}: pass a callable")
    if not isinstance(drafts, DraftedPaths) or drafts.paths != 1:
        raise InvalidInputError(f"drafts is {drafts}: a schedule takes DraftedPaths(1, length)")
    steps = whole_number(steps, "steps", 1)
    by_length = [
        round_subject(rule, target, draft, DraftedPaths(1, length), None, None, name)
        for length in range(1, drafts.length + 1)
    ]
    longest = by_length[-1]
    blocks = REQUESTS * steps
    if float(longest.vocab_size) ** (blocks * len(longest.target)) > MOST_TEXTS:
        raise SizeLimitError(
            f"there are {longest.vocab_size}^{blocks * len(longest.target)} texts of {REQUESTS} "
            f"requests in {steps} steps, more than {MOST_TEXTS:,}: take fewer tokens, shorter "
            "paths or fewer steps"
        )
    inherited = vars(longest) | {
        "name": f"{longest.name}, scheduled by {name_of(schedule)}",
        "drafted": f"{REQUESTS} requests in {steps} steps, each {drafts}",
        "target": [*longest.target] * blocks,
        "drafts": DraftedPaths(blocks, drafts.length),
    }
    return Scheduled(**inherited, by_length=by_length, schedule=schedule, steps=steps)
