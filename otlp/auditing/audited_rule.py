"""The audited rule: base class, its arguments, and the distribution of its texts.

A rule over one token outputs texts of one token.  A rule over paths or a tree outputs 1 to L + 1
tokens, and the target completes the text to L + 1 tokens.
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
from otlp.errors import InvalidInputError, OTLPError, one_line
from otlp.plan import Plan

Progress: TypeAlias = Callable[[str, float], None]


def silent(label: str, done: float) -> None:
    """Report no progress."""


SUM_TOLERANCE = 1e-6
"""Tolerance for a plan's conditional: negative entries, and the deviation of the sum from one."""

Rule: TypeAlias = Callable[[IntArray, FloatArray, FloatArray, Any], Any]
"""``rule(draft_tokens, p, q, rng)``."""


class NotJudgedError(OTLPError, RuntimeError):
    """The verifier does not respond, so there is no verdict."""


@dataclass(frozen=True)
class Failure:
    """Failure of a rule: the rule raised, or returned something other than tokens."""

    what: str

    def __str__(self) -> str:
        """Return a description of the failure."""
        return f"no token ({self.what})"


Output: TypeAlias = "tuple[int, ...] | Failure"


class Step(NamedTuple):
    """Drafted tokens and the output of the rule."""

    tokens: tuple[int, ...]
    output: Output

    def __str__(self) -> str:
        """Return a description of the output and the drafts."""
        what = self.output if isinstance(self.output, Failure) else list(self.output)
        return f"{what} for the drafts {list(self.tokens)}"


@dataclass(frozen=True, eq=False)
class AuditedRule(ABC):
    """A rule with its target and drafts.

    Attributes
    ----------
    name, drafted : str
        Name of the rule, and description of the declared drafts.
    target : sequence of ndarray
        The target's distributions after prefixes of 0, ..., L tokens, of shape (V^t, V).
    rule : callable
    sampler : callable or None
        ``sampler(rng)`` draws the tokens of a round; None if a draft scheme draws them.
    plan : Plan or None
        The plan, if the rule is `Plan.sample`.
    batch : int or None
        Number of rounds per call of the rule.
    reading : str
        How the rule's parameters were mapped, if not by recognized names in the usual order.
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
        """Vocabulary size, V."""
        return int(self.target[0].shape[-1])

    @property
    def checked(self) -> bool:
        """Whether the drafts are compared with the declared scheme."""
        return self.sampler is not None

    @property
    def reported_draft_error(self) -> float:
        """Total variation between the q that is passed to the rule and the declared q."""
        return 0.0

    @property
    def pooling_order(self) -> IntArray | None:
        """Order of the texts for pooling, similar deviations adjacent, failures last; or None."""
        return None

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of tokens drafted per round, N."""

    def token_shifts(self, rows: int) -> IntArray:
        """Return the number (mod V) added to the token ids of each row of a batch."""
        return np.zeros(rows, dtype=np.int64)

    def draft(self, rounds: int, rng: Any) -> IntArray:
        """Draft tokens, shape (rounds, N); `rounds` must be 1 if `rng` is a RandomSource."""
        if self.sampler is None:
            return self._draft(rounds, rng)
        size = self.vocab_size
        try:
            drawn = [check_tokens(self.sampler(rng), self.width, size) for _ in range(rounds)]
        except (Exception, SystemExit) as error:
            raise sampler_error("the draft sampler", error) from error
        return np.stack(drawn)

    @abstractmethod
    def _draft(self, rounds: int, rng: Any) -> IntArray: ...

    @abstractmethod
    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Run the rule on rows of drafted tokens; return the outputs."""

    @abstractmethod
    def compare_drafts(
        self, drafted: Mapping[tuple[int, ...], float], tolerance: float
    ) -> DraftCheck:
        """Compare the law of the drafted tokens with the declared scheme."""

    @abstractmethod
    def test_drafts(self, tokens: IntArray, rate: float, rng: np.random.Generator) -> DraftCheck:
        """Test sampled drafts against the declared scheme."""

    def conditional(self, tokens: tuple[int, ...]) -> FloatArray | Failure:
        """Return the plan's conditional distribution, or a Failure if it is not a distribution."""
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
        """Return 1 if the output is a drafted token, else 0; NaN for rules over several tokens."""
        return float(output[0] in tokens) if len(self.target) == 1 else np.nan

    def token_count(self, output: tuple[int, ...]) -> float:
        """Return the number of tokens of an output."""
        return len(output)

    def texts(self) -> FloatArray:
        """Return the target's law of texts as a vector."""
        return self.completed({(): 1.0})

    def completed(self, outputs: Mapping[tuple[int, ...], float]) -> FloatArray:
        """Return the law of texts: outputs completed by the target."""
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
        """Return the index of the text of each round, completed by the target; last: failures."""
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
    """Return the number whose digits in base `size` are the tokens."""
    index = 0
    for token in tokens:
        index = index * size + token
    return index


def draw_rows(laws: FloatArray, rng: Any) -> IntArray:
    """Draw a token of positive probability from each row: by inversion, or with a RandomSource."""
    if isinstance(rng, RandomSource):
        return np.array(list(map(rng.category, laws)))
    steps = np.cumsum(laws, axis=1)
    level = rng.random((len(laws), 1)) * steps[:, -1:]
    last = (steps < steps[:, -1:]).sum(axis=1)
    tokens: IntArray = np.minimum((steps <= level).sum(axis=1), last).astype(np.int64)
    return tokens


def call(rule: Callable[..., Any], *arguments: Any) -> Any:
    """Call a rule; return its result, or a Failure.  The last argument is the generator."""
    try:
        return rule(*arguments)
    except NotJudgedError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(arguments[-1], RandomSource) and type(error).__module__.startswith("numba"):
            arguments[-1].give_up("it draws in code compiled by numba, which cannot be followed")
        return Failure(raised(error))


def sampler_error(what: str, error: BaseException) -> InvalidInputError:
    """Return the InvalidInputError for a draft sampler that failed."""
    own = f": {one_line(error)}" if isinstance(error, OTLPError) else f" {raised(error)}"
    return InvalidInputError(what + own)


def raised(error: BaseException) -> str:
    """Return a description of an exception, on one line."""
    return f"raises {type(error).__name__}: {one_line(error)}".rstrip(": ")


def name_of(rule: object) -> str:
    """Return the name of a rule."""
    return str(getattr(rule, "__name__", type(rule).__name__))
