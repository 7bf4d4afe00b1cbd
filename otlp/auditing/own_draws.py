"""Audit of rounds that are drafted and verified with the same random state of an engine.

The rounds are played in sequence from this state, which shows random numbers that are used twice:
within a round by the law of its texts, and between rounds by tests of independence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing.audited_round_rule import AuditedRoundRule
from otlp.auditing.audited_rule import sampler_error
from otlp.auditing.real_calls import play_rounds
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.sampled import judge_sample
from otlp.auditing.settings import AuditRun
from otlp.auditing.successive import LAGS, successive_tests
from otlp.checks import check_rows
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError

Drafter: TypeAlias = Callable[[Sequence[FloatArray], int], Any]
"""``drafter(draft_tables, rows) -> tokens``, of shape (rows, N)."""

WHY = "it drafts and verifies with its own random state, which advances from round to round"


@dataclass(frozen=True, eq=False)
class OwnDraws(AuditedRoundRule):
    """A rule over rounds that are drafted with the rule's own random state.

    Attributes
    ----------
    drafter : callable
    redrawn : bool
        Whether the drafter's tokens are discarded, and drawn from the same law with another
        generator.
    """

    drafter: Drafter
    redrawn: bool = False

    @property
    def checked(self) -> bool:
        """Whether the drafts are compared with the declared scheme."""
        return not self.redrawn

    def token_shifts(self, rows: int) -> IntArray:
        """Return zeros: the drafter's tokens must reach the verifier unchanged."""
        return np.zeros(rows, dtype=np.int64)

    def draft(self, rounds: int, rng: Any) -> IntArray:
        """Return the tokens of one call of the drafter, one row per round."""
        size = self.vocab_size
        tables = [t.reshape((size,) * (i + 1)).copy() for i, t in enumerate(self.draft_tables)]
        try:
            rows = check_rows(self.drafter(tables, rounds), self.width, size)
            if len(rows) != rounds:
                raise InvalidInputError(f"it must return {rounds} rows, got {len(rows)}")
        except (Exception, SystemExit) as error:
            raise sampler_error("the drafter", error) from error
        return self._draft(rounds, rng) if self.redrawn else rows


def own_draws(audited: AuditedRoundRule, drafter: Any) -> OwnDraws:
    """Return the rule with drafts from `drafter`, which has its own random state.

    Raises
    ------
    InvalidInputError
        If `drafter` is not callable, or there is also a sampler.
    """
    if not callable(drafter):
        raise InvalidInputError(f"drafter is a {type(drafter).__name__}: pass a callable")
    if audited.sampler is not None:
        raise InvalidInputError("sampler and drafter exclude each other: pass one of them")
    return OwnDraws(**vars(audited), drafter=drafter)


def audit_own_draws(audited: OwnDraws, settings: AuditRun) -> AuditReport:
    """Play rounds in sequence; test the law of their texts, their drafts and their independence.

    Half of the false-alarm rate is for the laws, half for independence.  If the texts do not follow
    the target, the rounds are repeated with redrawn drafts: if these texts pass, the rule is
    correct but shares random numbers with its drafts.
    """
    half = replace(settings, false_alarm_rate=0.5 * settings.false_alarm_rate)
    step = audited.batch or 1

    def play(rule: OwnDraws) -> tuple[AuditReport, IntArray, list[Any]]:
        tokens, outputs = play_rounds(rule, settings, settings.samples, step)
        return judge_sample(rule, half, WHY, tokens, outputs), tokens, outputs

    report, tokens, outputs = play(audited)
    if report.failures:
        return report
    # Lags pair rows of one call, and (if there are enough calls) a row with that of the next call.
    lags = (*LAGS, step) if max(LAGS) < step <= settings.samples // 2 else LAGS
    tests = successive_tests(tokens.tolist(), outputs, half.false_alarm_rate, lags)
    found = replace(report, successive=tests, false_alarm_rate=settings.false_alarm_rate)
    if found.verdict is Verdict.NOT_LOSSLESS:
        redrawn = play(replace(audited, redrawn=True))[0]
        found = replace(found, apart=redrawn.test if redrawn.passed else None)
    return found
