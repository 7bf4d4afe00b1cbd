"""What is audited: a rule, what it is told and what it does, whatever that is."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme
from otlp.drafts.checks import check_tokens
from otlp.errors import InvalidInputError, OTLPError, clean
from otlp.plan import Plan

Rule: TypeAlias = Callable[[IntArray, FloatArray, FloatArray, Any], Any]
Sampler: TypeAlias = Callable[[Any], npt.ArrayLike]
Progress: TypeAlias = Callable[[str, float], None]

SUM_TOLERANCE = 1e-6
"""How far a plan's conditional may be from a distribution: below zero, or off a sum of one."""

LONGEST_MESSAGE = 160
"""Characters kept of what a rule says."""


def check_signature(rule: Callable[..., Any]) -> None:
    """Refuse a rule that cannot be called with its four arguments.

    Raises
    ------
    InvalidInputError
        If its signature is known and does not fit.
    """
    try:
        signature = inspect.signature(rule)
    except (TypeError, ValueError):  # compiled code may have none
        return
    try:
        signature.bind(None, None, None, None)
    except TypeError as error:
        name = getattr(rule, "__name__", type(rule).__name__)
        raise InvalidInputError(
            f"rule is {name}{signature}: it is called as rule(draft_tokens, p, q, rng) ({error})"
        ) from None


@dataclass(frozen=True)
class Failure:
    """What a rule did instead of returning a token."""

    what: str

    def __str__(self) -> str:
        """Say that there was no token, and why."""
        return f"no token ({self.what})"


class Step(NamedTuple):
    """What was drafted and what the rule made of it."""

    tokens: tuple[int, ...]
    outcome: int | Failure

    def __str__(self) -> str:
        """Say both in words."""
        return f"{self.outcome} for the drafts {list(self.tokens)}"


@dataclass(frozen=True, eq=False)
class Subject:
    """A rule on a problem.

    Attributes
    ----------
    rule : callable
    plan : Plan or None
        The plan whose `sample` is the rule.
    target : ndarray, shape (V,)
    declared : DraftScheme
        What the drafts are said to follow.
    drafts : DraftScheme or callable
        What they are drawn from.
    told : ndarray
        What the rule is told as q.
    tolerance : float
        Largest exact total variation that is called lossless.
    """

    rule: Rule
    plan: Plan | None
    target: FloatArray
    declared: DraftScheme
    drafts: DraftScheme | Sampler
    told: FloatArray
    tolerance: float

    def draw(self, rng: Any) -> IntArray:
        """Draw a tuple from the user's sampler.

        Raises
        ------
        InvalidInputError
            If the sampler raises, or returns no n-tuple of tokens.
        """
        assert not isinstance(self.drafts, DraftScheme)
        try:
            tokens = self.drafts(rng)
            return check_tokens(tokens, self.declared.n, self.target.size)
        except OTLPError as error:
            raise InvalidInputError(f"the sampler of the drafts: {one_line(error)}") from error
        except (Exception, SystemExit) as error:
            raise InvalidInputError(f"the sampler of the drafts {_raised(error)}") from error

    def verify(self, tokens: IntArray, rng: Any) -> int | Failure:
        """Run the rule on copies, so that it may write to them."""
        try:
            token = self.rule(tokens.copy(), self.target.copy(), self.told.copy(), rng)
        except (Exception, SystemExit) as error:
            return Failure(_raised(error))
        return _as_token(token, self.target.size)

    def conditional(self, tokens: tuple[int, ...]) -> FloatArray | Failure:
        """What the plan says its verified token follows, if that is a distribution."""
        assert self.plan is not None
        try:
            law = np.array(self.plan.conditional(np.array(tokens)), dtype=np.float64)
        except (Exception, SystemExit) as error:
            return Failure(_raised(error))
        if law.shape != self.target.shape:
            return Failure(f"has a conditional of shape {law.shape}, not {self.target.shape}")
        if not np.isfinite(law).all():
            return Failure("has a conditional that is not finite")
        if law.min() < -SUM_TOLERANCE:
            return Failure(f"has a conditional with the negative entry {law.min():.6g}")
        if abs(law.sum() - 1.0) > SUM_TOLERANCE:
            return Failure(f"has a conditional that sums to {law.sum():.6g}")
        return law

    @property
    def told_apart(self) -> float:
        """Total variation of what the rule is told from the declared q; NaN if incomparable."""
        own = draft_vectors(self.declared)
        if own is None or own.shape != self.told.shape:
            return math.nan
        return float(np.max(0.5 * np.abs(own - self.told).sum(axis=-1)))


def draft_vectors(scheme: DraftScheme) -> FloatArray | None:
    """The q of a scheme, of shape (V,), or (n, V) if the drafts differ; None if it has none."""
    for name in ("draft", "drafts"):
        if hasattr(scheme, name):
            return np.array(getattr(scheme, name), dtype=np.float64)
    return np.array(scheme.mean_draft) if scheme.n == 1 else None


def _as_token(value: Any, vocab_size: int) -> int | Failure:
    item = value.item() if getattr(value, "shape", None) in ((1,), (1, 1)) else value
    try:
        if isinstance(item, (bool, np.bool_)):
            raise TypeError
        token = operator.index(item)
    except Exception:
        return Failure(f"returns {one_line(value)}, which is no token id")
    if not 0 <= token < vocab_size:
        return Failure(f"returns {token}, outside the vocabulary [0, {vocab_size})")
    return token


def _raised(error: BaseException) -> str:
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
