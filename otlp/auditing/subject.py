"""What is audited: a rule over drafted tokens, what it is handed, and the texts that it gives.

A rule over one token gives texts of a single token; one over paths or a tree gives up to L + 1,
and the target completes them to that length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.drafted_tree import Tables
from otlp.auditing.random_source import RandomSource
from otlp.checks import check_tokens
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError, OTLPError, clean
from otlp.plan import Plan

Progress: TypeAlias = Callable[[str, float], None]


def silent(label: str, done: float) -> None:
    """Report no progress."""


SUM_TOLERANCE = 1e-6
"""How far a plan's conditional may be from a distribution: below zero, or off a sum of one."""

LONGEST_MESSAGE = 160
"""Characters kept of what a rule says."""


Rule: TypeAlias = Callable[[IntArray, FloatArray, FloatArray, Any], Any]
"""Called with drafted tokens, p, q and a generator."""


class NotJudgedError(OTLPError, RuntimeError):
    """What verifies cannot be asked any more, so that there is no verdict."""


@dataclass(frozen=True)
class Failure:
    """What a rule did instead of returning tokens."""

    what: str

    def __str__(self) -> str:
        """Say that there was no token, and why."""
        return f"no token ({self.what})"


Output: TypeAlias = "tuple[int, ...] | Failure"


class Step(NamedTuple):
    """What was drafted and what the rule made of it."""

    tokens: tuple[int, ...]
    output: Output

    def __str__(self) -> str:
        """Say both in words."""
        what = self.output if isinstance(self.output, Failure) else list(self.output)
        return f"{what} for the drafts {list(self.tokens)}"


@dataclass(frozen=True, eq=False)
class Subject(ABC):
    """A rule on a target, with its drafts.

    Attributes
    ----------
    name, drafted : str
        The rule, and what its drafts are said to follow.
    target : sequence of ndarray
        The target's distributions after prefixes of 0, ..., L tokens, of shape (V^t, V).
    rule : callable
    sampler : callable or None
        What really draws the tokens of a round, given a generator, where that is no scheme.
    plan : Plan or None
        Whose `sample` is the rule.
    batch : int or None
        Rounds that the rule takes at once.
    reading : str
        How the rule's arguments were read, where its names do not say all.
    """

    name: str
    drafted: str
    target: Tables
    rule: Rule
    sampler: Callable[[Any], npt.ArrayLike] | None
    plan: Plan | None
    batch: int | None
    reading: str

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.target[0].shape[-1])

    @property
    def checked(self) -> bool:
        """Whether the drafts are held against a declaration."""
        return self.sampler is not None

    @property
    def reported_draft_error(self) -> float:
        """Total variation of the q that is reported to the rule from the declared one."""
        return 0.0

    @property
    def suspects(self) -> IntArray | None:
        """An order of the texts, failures last, in which neighbours are off alike; or None."""
        return None

    @property
    @abstractmethod
    def width(self) -> int:
        """Tokens that are drafted in a round, N."""

    def renaming(self, rows: int) -> IntArray:
        """By how much the tokens of each row of a batch are shifted before the rule sees them."""
        return np.zeros(rows, dtype=np.int64)

    def draft(self, rounds: int, rng: Any) -> IntArray:
        """Draft the tokens of rounds, shape (rounds, N); of one, if the draws are followed."""
        if self.sampler is None:
            return self._draft(rounds, rng)
        size = self.vocab_size
        try:
            drawn = [check_tokens(self.sampler(rng), self.width, size) for _ in range(rounds)]
        except (Exception, SystemExit) as error:
            raise no_drafts("the sampler of the drafts", error) from error
        return np.stack(drawn)

    @abstractmethod
    def _draft(self, rounds: int, rng: Any) -> IntArray: ...

    @abstractmethod
    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Run the rule on rows of drafted tokens."""

    @abstractmethod
    def compare_drafts(
        self, drafted: Mapping[tuple[int, ...], float], tolerance: float
    ) -> DraftCheck:
        """Hold the law of the drafted tokens against the declaration."""

    @abstractmethod
    def test_drafts(self, tokens: IntArray, rate: float, rng: np.random.Generator) -> DraftCheck:
        """Hold sampled drafts against the declaration."""

    def conditional(self, tokens: tuple[int, ...]) -> FloatArray | Failure:
        """What the plan says its verified token follows, if that is a distribution."""
        assert self.plan is not None
        try:
            law = np.array(self.plan.conditional(np.array(tokens)), dtype=np.float64)
        except (Exception, SystemExit) as error:
            return Failure(raised(error))
        if law.shape != (self.vocab_size,):
            return Failure(f"has a conditional of shape {law.shape}, not {(self.vocab_size,)}")
        if not np.isfinite(law).all():
            return Failure("has a conditional that is not finite")
        if law.min() < -SUM_TOLERANCE:
            return Failure(f"has a conditional with the negative entry {law.min():.6g}")
        if abs(law.sum() - 1.0) > SUM_TOLERANCE:
            return Failure(f"has a conditional that sums to {law.sum():.6g}")
        return law

    def accepted(self, tokens: Sequence[int], output: tuple[int, ...]) -> float:
        """Whether the output is one of the drafted tokens; NaN for a rule over several tokens."""
        return float(output[0] in tokens) if len(self.target) == 1 else np.nan

    def given(self, output: tuple[int, ...]) -> float:
        """How many tokens an output gives."""
        return len(output)

    def texts(self) -> FloatArray:
        """The target's law of texts, as one vector."""
        return self.completed({(): 1.0})

    def completed(self, outputs: Mapping[tuple[int, ...], float]) -> FloatArray:
        """The law of texts: outputs, continued by the target."""
        ending: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for tokens, weight in outputs.items():
            ending[len(tokens)].append((number_of(tokens, self.vocab_size), weight))
        law = np.array([outputs.get((), 0.0)])
        for level, table in enumerate(self.target):
            law = (law[:, None] * table).reshape(-1)
            for index, weight in ending[level + 1]:
                law[index] += weight
        return law

    def cells(self, outputs: Sequence[Output], rng: np.random.Generator) -> IntArray:
        """The text of each round, continued by the target; failures are a text of their own."""
        size, most = self.vocab_size, len(self.target)
        failed = size**most
        length = np.array([most if isinstance(o, Failure) else len(o) for o in outputs])
        index = np.array(
            [failed if isinstance(o, Failure) else number_of(o, size) for o in outputs]
        )
        for level in range(1, most):
            short = length == level
            if short.any():
                laws = self.target[level][index[short]]
                index[short] = index[short] * size + draw_rows(laws, rng)
                length[short] += 1
        return index


def number_of(tokens: Sequence[int], size: int) -> int:
    """Tokens as the digits of a number in base V."""
    index = 0
    for token in tokens:
        index = index * size + token
    return index


def draw_rows(laws: FloatArray, rng: Any) -> IntArray:
    """One token from each row, by inversion where draws are not followed; none of probability 0."""
    if isinstance(rng, RandomSource):
        return np.array(list(map(rng.category, laws)))
    steps = np.cumsum(laws, axis=1)
    level = rng.random((len(laws), 1)) * steps[:, -1:]
    last = (steps < steps[:, -1:]).sum(axis=1)
    tokens: IntArray = np.minimum((steps <= level).sum(axis=1), last).astype(np.int64)
    return tokens


def call(rule: Callable[..., Any], *given: Any) -> Any:
    """What a rule answers, or the failure; its last argument is the generator."""
    try:
        return rule(*given)
    except NotJudgedError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(given[-1], RandomSource) and type(error).__module__.startswith("numba"):
            given[-1].give_up("it draws in code that numba compiled, which cannot be followed")
        return Failure(raised(error))


def no_drafts(what: str, error: BaseException) -> InvalidInputError:
    """What is said of a function that gives no drafts."""
    own = f": {one_line(error)}" if isinstance(error, OTLPError) else f" {raised(error)}"
    return InvalidInputError(what + own)


def raised(error: BaseException) -> str:
    """What was raised, on one line."""
    return f"raises {type(error).__name__}: {one_line(error)}".rstrip(": ")


def one_line(thing: object) -> str:
    """The first line of what a foreign object says of itself, without control characters.

    It is cut behind a word where it is long, except for what this library says.
    """
    try:
        text = str(thing) if isinstance(thing, BaseException) else repr(thing)
    except Exception:
        return f"a {type(thing).__name__}"
    first = next(iter(text.splitlines()), "")
    if len(first) > LONGEST_MESSAGE and not isinstance(thing, OTLPError):
        kept = first[: LONGEST_MESSAGE - 4]
        first = (kept[: kept.rfind(" ")] if " " in kept else kept) + " ..."
    return clean(first)


def name_of(rule: object) -> str:
    """What a rule is called."""
    return str(getattr(rule, "__name__", type(rule).__name__))
