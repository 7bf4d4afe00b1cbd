"""Rounds as an engine plays them: it drafts with its own random state, and verifies with it.

A verifier that is handed our drafts is judged alone.  Here rounds follow each other from one state
that drafting and verification share, so that numbers that are used twice are seen: within a round
in the law of its texts, from round to round in pairs of rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing.real_calls import play_rounds
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.round_subject import RoundSubject
from otlp.auditing.sampled import judge_sample
from otlp.auditing.settings import AuditRun
from otlp.auditing.subject import no_drafts
from otlp.auditing.successive import LAGS, successive_tests
from otlp.checks import check_rows
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError

Drafter: TypeAlias = Callable[[Sequence[FloatArray], int], Any]
"""``drafter(draft_tables, rows) -> tokens``, of shape (rows, N)."""

WHY = "drafts and coins come from a state of its own, from which rounds follow each other"


@dataclass(frozen=True, eq=False)
class OwnDraws(RoundSubject):
    """A rule over rounds that were drafted with its own random state.

    Attributes
    ----------
    drafter : callable
    apart : bool
        Whether what it drafts is thrown away, and the same law is drawn from by another generator.
    """

    drafter: Drafter
    apart: bool = False

    @property
    def checked(self) -> bool:
        """Whether the drafts are held against a declaration."""
        return not self.apart

    def renaming(self, rows: int) -> IntArray:
        """No row is renamed: what drafted it knows its tokens."""
        return np.zeros(rows, dtype=np.int64)

    def draft(self, rounds: int, rng: Any) -> IntArray:
        """The tokens of one call of the drafter, a row each round."""
        size = self.vocab_size
        tables = [t.reshape((size,) * (i + 1)).copy() for i, t in enumerate(self.draft_tables)]
        try:
            rows = check_rows(self.drafter(tables, rounds), self.width, size)
            if len(rows) != rounds:
                raise InvalidInputError(f"it drafts {len(rows)} rows in place of {rounds}")
        except (Exception, SystemExit) as error:
            raise no_drafts("the drafter", error) from error
        return self._draft(rounds, rng) if self.apart else rows


def own_draws(subject: RoundSubject, drafter: Any) -> OwnDraws:
    """Let a subject's drafts be those of a function that has a state of its own.

    Raises
    ------
    InvalidInputError
        If it is no function, or stands beside a sampler.
    """
    if not callable(drafter):
        raise InvalidInputError(f"drafter is a {type(drafter).__name__}: pass a callable")
    if subject.sampler is not None:
        raise InvalidInputError("there are a sampler and a drafter: pass one of them")
    return OwnDraws(**vars(subject), drafter=drafter)


def audit_own_draws(subject: OwnDraws, settings: AuditRun) -> AuditReport:
    """Play rounds one after the other, and test their law, their drafts and their independence.

    Half of the false-alarm rate is that of the laws, half that of independence.  Texts that are off
    are played again with drafts that are drawn apart: if that mends them, the rule is right, and
    shares random numbers with its drafts.
    """
    half = replace(settings, false_alarm_rate=0.5 * settings.false_alarm_rate)
    step = subject.batch or 1

    def played(one: OwnDraws) -> tuple[AuditReport, IntArray, list[Any]]:
        tokens, outputs = play_rounds(one, settings.samples, settings.rng, settings.progress, step)
        return judge_sample(one, half, WHY, tokens, outputs), tokens, outputs

    report, tokens, outputs = played(subject)
    if report.failures:
        return report
    # rows of one call, and the same row of successive calls, where there are enough of these
    lags = (*LAGS, step) if max(LAGS) < step <= settings.samples // 2 else LAGS
    tests = successive_tests(tokens.tolist(), outputs, half.false_alarm_rate, lags)
    found = replace(report, successive=tests, false_alarm_rate=settings.false_alarm_rate)
    if found.verdict is Verdict.NOT_LOSSLESS:
        again = played(replace(subject, apart=True))[0]
        found = replace(found, apart=again.test if again.passed else None)
    return found
