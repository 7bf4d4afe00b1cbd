"""Audited rules over one token: a callable, a plan or a solver, with a draft scheme or sampler."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from otlp.auditing.argument_order import read_arguments
from otlp.auditing.audited_rule import AuditedRule, Failure, Output, call, name_of
from otlp.auditing.draft_check import DraftCheck, check_drafts, exact_draft_check
from otlp.auditing.random_source import RandomSource
from otlp.checks import as_floats
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme, DraftTuples
from otlp.errors import InvalidInputError, one_line
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Solution

Sampler: TypeAlias = Callable[[Any], npt.ArrayLike]


@runtime_checkable
class Solves(Protocol):
    """A solver."""

    def solve(self, problem: Problem) -> Solution:
        """Return the solution of a problem."""


@dataclass(frozen=True, eq=False)
class AuditedTokenRule(AuditedRule):
    """A rule over one token.

    Attributes
    ----------
    problem : Problem
        The target and the declared scheme.
    drafts : DraftScheme or None
        The scheme from which the drafts are drawn; None if `sampler` draws them.
    reported_draft : ndarray
        The q that is passed to the rule.
    """

    problem: Problem
    drafts: DraftScheme | None
    reported_draft: FloatArray

    @property
    def width(self) -> int:
        """Number of tokens drafted per round, N."""
        return self.problem.n

    @property
    def checked(self) -> bool:
        """Whether the drafts are compared with the declared scheme."""
        return self.drafts is not self.problem.drafts

    @property
    def reported_draft_error(self) -> float:
        """Total variation between `reported_draft` and the declared q; NaN if not comparable."""
        own = draft_vectors(self.problem.drafts)
        if own is None or own.shape != self.reported_draft.shape:
            return math.nan
        return float(np.max(0.5 * np.abs(own - self.reported_draft).sum(axis=-1)))

    @property
    def pooling_order(self) -> IntArray | None:
        """The tokens by q/p, on which deviations typically depend; None if q has no (V,) rows."""
        size, target = self.vocab_size, self.problem.target
        if self.reported_draft.shape[-1:] != (size,):
            return None
        mean = self.reported_draft.reshape(-1, size).mean(axis=0)
        with np.errstate(over="ignore"):
            ratio = np.divide(mean, target, out=np.zeros(size), where=target > 0.0)
        return np.append(np.argsort(ratio, kind="stable"), size).astype(np.int64)

    @cached_property
    def listed(self) -> DraftTuples:
        """All tuples of the scheme with their probabilities."""
        assert self.drafts is not None
        return self.drafts.enumerate_tuples()

    def _draft(self, rounds: int, rng: Any) -> IntArray:
        if isinstance(rng, RandomSource):
            at = rng.category(self.listed.mass / self.listed.mass.sum())
            return self.listed.tokens[at : at + 1]
        assert self.drafts is not None
        return self.drafts.sample(rng, rounds)

    def play(self, tokens: IntArray, rng: Any) -> list[Output]:
        """Run the rule on each row of drafted tokens; the rule may write to its arguments."""
        laws = self.problem.target, self.reported_draft
        return [
            _as_token(call(self.rule, *(one.copy() for one in (row, *laws)), rng), self.vocab_size)
            for row in tokens
        ]

    def compare_drafts(
        self, drafted: Mapping[tuple[int, ...], float], tolerance: float
    ) -> DraftCheck:
        """Compare the law of the drafted tokens with the declared scheme."""
        if self.drafts is not None:
            rows = map(tuple, self.listed.tokens.tolist())
            drafted = dict(zip(rows, self.listed.mass.tolist(), strict=True))
        return exact_draft_check(drafted, self.problem.drafts, tolerance)

    def test_drafts(self, tokens: IntArray, rate: float, rng: np.random.Generator) -> DraftCheck:
        """Test sampled drafts against the declared scheme."""
        return check_drafts(tokens, self.problem.drafts, rate, rng)


def audited_token_rule(
    rule: Any, target: Any, drafts: Any, declared: Any, reported_draft: Any
) -> AuditedTokenRule:
    """Check the arguments of `otlp.audit`."""
    problem = _problem(target, drafts, declared)
    plan = _plan(rule, problem)
    if plan is not None:
        sample, reading = plan.sample, ""

        def called(tokens: Any, p: Any, q: Any, rng: Any) -> Any:
            return sample(tokens, rng)

    elif callable(rule):
        called, reading = read_arguments(rule)
    else:
        raise InvalidInputError(
            f"rule is a {type(rule).__name__}: pass a callable "
            "(draft_tokens, p, q, rng) -> token, a plan or a solver"
        )
    return AuditedTokenRule(
        name=name_of(rule),
        drafted=str(problem.drafts),
        target=[problem.target[None]],
        rule=called,
        sampler=None if isinstance(drafts, DraftScheme) else drafts,
        plan=plan,
        batch=None,
        reading=reading,
        problem=problem,
        drafts=drafts if isinstance(drafts, DraftScheme) else None,
        reported_draft=_reported(reported_draft, problem.drafts),
    )


def _problem(target: Any, drafts: Any, declared: Any) -> Problem:
    """Return the problem with the declared scheme."""
    if isinstance(drafts, DraftScheme):
        problem = Problem(target, drafts if declared is None else declared)
        given, wanted = (drafts.n, drafts.vocab_size), (problem.n, problem.vocab_size)
        if given != wanted:
            raise InvalidInputError(
                f"drafts has (n, V) = {given} and declared {wanted}: both must have the same n "
                "and V"
            )
        return problem
    if not callable(drafts) or isinstance(drafts, type):
        raise InvalidInputError(
            f"drafts is a {type(drafts).__name__}: pass a draft scheme or a sampler(rng) -> tokens"
        )
    if declared is None:
        raise InvalidInputError(
            f"drafts is a sampler ({name_of(drafts)}): declared= must be the scheme of its "
            "drafts, such as otlp.IID(q, n)"
        )
    return Problem(target, declared)


def _plan(rule: Any, problem: Problem) -> Plan | None:
    if isinstance(rule, Plan):
        return rule
    if not isinstance(rule, Solves):
        return None
    if isinstance(rule, type):
        raise InvalidInputError(f"rule is the class {rule.__name__}: pass {rule.__name__}()")
    solution = rule.solve(problem)
    if not isinstance(solution, Solution):
        raise InvalidInputError(f"rule.solve must return a Solution, got {type(solution).__name__}")
    if solution.plan is None:
        raise InvalidInputError(f"rule.solve must return a solution with a plan, got {solution}")
    return solution.plan


def _reported(given: Any, declared: DraftScheme) -> FloatArray:
    """Return the q for the rule: by default the declared q, or the mean law of the drafts."""
    if given is None:
        own = draft_vectors(declared)
        return np.array(declared.mean_draft) if own is None else own
    reported = as_floats(given, "reported_draft")
    if reported.ndim == 0:
        raise InvalidInputError(
            f"reported_draft is {reported}: it must be an array, such as q of shape (V,)"
        )
    return reported.copy()


def draft_vectors(scheme: DraftScheme) -> FloatArray | None:
    """Return the q of a scheme, shape (V,) or (n, V) if the drafts differ; None without a q."""
    for name in ("draft", "drafts"):
        if hasattr(scheme, name):
            return np.array(getattr(scheme, name), dtype=np.float64)
    return np.array(scheme.mean_draft) if scheme.n == 1 else None


def _as_token(value: Any, vocab_size: int) -> Output:
    if isinstance(value, Failure):
        return value
    item = value.item() if getattr(value, "shape", None) in ((1,), (1, 1)) else value
    try:
        if isinstance(item, (bool, np.bool_)):
            raise TypeError
        token = operator.index(item)
    except Exception:
        return Failure(f"returns {one_line(value)}, which is not a token id")
    if not 0 <= token < vocab_size:
        return Failure(f"returns {token}, outside the vocabulary [0, {vocab_size})")
    return (token,)
