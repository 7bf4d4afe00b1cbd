"""Rules of user files: audited first, then measured on the same rows as the solvers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import AuditReport, Verdict, audit
from otlp.auditing.sampled_acceptance import RATE, SampledAcceptance, sample_acceptance
from otlp.cli.audit import load_function
from otlp.cli.child import ChildError, run_in_child
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError
from otlp.parallel.rows import RowSource
from otlp.problem import Problem
from otlp.studies.points import LOSSY, PRECISION, SweepPoint, SweepSetting
from otlp.studies.sweep import Grid

MIN_TOKENS = 5
"""Minimum vocabulary size of the problem on which a rule is audited."""


def audit_size(n: int) -> int:
    """Return the vocabulary size of the audited problem, enough for n distinct drafts."""
    return max(MIN_TOKENS, n + 2)


def synthetic_problem(setting: SweepSetting) -> Problem:
    """Return the synthetic problem on which a rule is audited for a setting."""
    p, q = np.random.default_rng(0).dirichlet(np.ones(audit_size(setting.n)), size=2)
    return Problem(p, make_scheme(setting.scheme, q, setting.n))


@dataclass(frozen=True, eq=False)
class Measured:
    """Audit and sampled acceptance of a rule at a setting.

    Attributes
    ----------
    setting : SweepSetting
    found : SampledAcceptance
        Acceptance on the rows; NaN if the rule failed.
    reason : str
        Why the rule failed, is not proved lossless or deviates on the rows; empty otherwise.
    audited : AuditReport or None
        Audit on `synthetic_problem`; None if the rule failed.
    """

    setting: SweepSetting
    found: SampledAcceptance
    reason: str
    audited: AuditReport | None = None

    @property
    def verdict(self) -> str:
        """The reason, or the verdict of the audit."""
        return self.reason or f"LOSSLESS on {audit_size(self.setting.n)} synthetic tokens"

    def records(self, rule: str, source: RowSource) -> list[dict[str, Any]]:
        """Return a record of the rule per row, for `write_result`."""
        found, setting = self.found, self.setting
        same = {"scheme": setting.scheme, "n": setting.n, "first_draft": None, "rule": rule}
        # A proof on synthetic tokens is not a guarantee on these rows.
        same |= {"guarantee": "", "reason": self.verdict}
        return [
            {"row": row, **same, **_acceptance(mean, error)}
            for row, mean, error in zip(source.numbers, found.each, found.each_error, strict=True)
        ]

    def point(self, rule: str, source: RowSource) -> SweepPoint:
        """Return the mean acceptance of the rule over the rows."""
        passages, found = np.asarray(source.passages), self.found
        return SweepPoint.of(self.setting, rule, found.each, self.reason, passages, found.error)

    def timing(self, rule: str) -> dict[str, Any]:
        """Return seconds per call and mean acceptance of the rule."""
        found, known = self.found, self.found.draws > 0
        return {
            "rule": rule,
            "top_k": self.setting.top_k,
            "n": self.setting.n,
            "seconds": found.seconds if known else None,
            "acceptance": float(found.each.mean()) if known else None,
            "acceptance_half_width": found.error if known else None,
            "reason": self.verdict,
        }


def measure_own(
    rule: str, source: RowSource, grid: Grid, report: Callable[[str, int], None]
) -> Iterator[Measured]:
    """Audit a rule under each setting and sample its acceptance on the rows.

    Parameters
    ----------
    rule : str
        FILE.py:FUNCTION, called as in `otlp.audit`, in a separate process.
    source : RowSource
    grid : Grid
        Its time limit bounds the sampling of a setting whose interval stays wide.
    report : callable
        Called with a label and the number of finished settings.
    """
    for done, setting in enumerate(grid.settings, 1):
        limit = grid.time_limit * (1 + len(source.numbers))
        work = partial(_audit_and_sample, rule, source, grid, setting)
        try:
            audited, found = run_in_child(work, limit, lambda *_: None)
            yield Measured(setting, found, _reason(audited, found, audit_size(setting.n)), audited)
        except ChildError as error:
            unknown = np.full((len(source.numbers), 2), math.nan)
            none = np.zeros(len(unknown), np.bool_)
            each = unknown[:, 0]
            nothing = SampledAcceptance(each, each, 0.0, 0, none, math.nan, unknown)
            yield Measured(setting, nothing, str(error))
        report(f"{rule}, {setting.scheme}, n = {setting.n}", done)


def _acceptance(mean: float, error: float) -> dict[str, Any]:
    if math.isnan(mean):
        return {"acceptance": None, "acceptance_interval": None}
    return {"acceptance": float(mean), "acceptance_interval": interval(mean, error)}


def interval(mean: float, error: float) -> tuple[float, float]:
    """Return the interval of an acceptance with half-width `error`."""
    return float(max(0.0, mean - error)), float(min(1.0, mean + error))


def _audit_and_sample(
    rule: str, source: RowSource, grid: Grid, setting: SweepSetting, progress: Callable[..., None]
) -> tuple[AuditReport, SampledAcceptance]:
    """Audit a rule and sample its acceptance on each row."""
    sys.stdout = sys.stderr  # Keep output of the rule out of the table.
    function = load_function(rule, "--rules")
    small, rng = synthetic_problem(setting), np.random.default_rng(1)
    report = audit(function, small.target, small.drafts)
    if report.verdict is Verdict.RULE_FAILED:
        failure = next(iter(report.failures))
        raise InvalidInputError(
            f"the rule failed on {small.vocab_size} synthetic tokens: it {failure}"
        )
    problems = []
    for _, capture in source.part(0, len(source.numbers)):
        cuts = {"top_k": setting.top_k, **grid.cuts}
        p, q = capture.distributions(0, setting.temperature, **cuts)
        problems.append(Problem(p, make_scheme(setting.scheme, q, setting.n)))
    return report, sample_acceptance(function, problems, PRECISION, grid.time_limit, rng)


def _reason(report: AuditReport, found: SampledAcceptance, tokens: int) -> str:
    """Return why a rule is not proved lossless or deviates on the rows; empty if neither."""
    if report.passed and found.deviating.any():
        return (
            f"{LOSSY} on {np.count_nonzero(found.deviating)} of the rows: the outputs do not "
            f"follow the target (G-test, false-alarm rate {RATE:g})"
        )
    if report.method != "sampling" and report.passed:
        return ""
    if report.passed:
        return f"not proved lossless, only sampled: {report.why_sampled}"
    lost = f"total variation {report.total_variation:.3g}"
    return f"{LOSSY} on {tokens} synthetic tokens ({report.verdict.name}): {lost}"
