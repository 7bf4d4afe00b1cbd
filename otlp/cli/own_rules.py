"""Rules of a user's file beside the solvers: audited first, then measured on the same rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import AuditReport, audit
from otlp.auditing.sampled_acceptance import RATE, SampledAcceptance, sample_acceptance
from otlp.cli.audit import load_function
from otlp.cli.child import ChildError, run_in_child
from otlp.drafts.by_name import make_scheme
from otlp.parallel.rows import RowSource
from otlp.problem import Problem
from otlp.studies.points import LOSSY, PRECISION, SweepPoint, SweepSetting
from otlp.studies.sweep import Grid

LEAST_TINY = 5
"""Tokens of the problem that a rule is audited on, or more for many drafts."""


def tiny(n: int) -> int:
    """Tokens enough for n different drafts, and some to spare."""
    return max(LEAST_TINY, n + 2)


def made_up(setting: SweepSetting) -> Problem:
    """The problem that a rule is audited on under a setting."""
    p, q = np.random.default_rng(0).dirichlet(np.ones(tiny(setting.n)), size=2)
    return Problem(p, make_scheme(setting.scheme, q, setting.n))


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found of a rule at a setting.

    Attributes
    ----------
    setting : SweepSetting
    found : SampledAcceptance
        On the rows; NaN if the rule failed.
    reason : str
        What is against the rule; empty where nothing is.
    audited : AuditReport or None
        On the problem of `made_up`; None if the rule failed.
    """

    setting: SweepSetting
    found: SampledAcceptance
    reason: str
    audited: AuditReport | None = None

    @property
    def said(self) -> str:
        """What is against the rule, or what was proved of it."""
        return self.reason or f"LOSSLESS on {tiny(self.setting.n)} made-up tokens"

    def records(self, rule: str, source: RowSource) -> list[dict[str, Any]]:
        """What was found of the rule on each row, for `write_result`."""
        found, setting = self.found, self.setting
        same = {"scheme": setting.scheme, "n": setting.n, "first_draft": None, "rule": rule}
        # what was proved of made-up tokens is no guarantee on these rows
        same |= {"guarantee": "", "reason": self.said}
        return [
            {"row": row, **same, **_acceptance(mean, error)}
            for row, mean, error in zip(source.numbers, found.each, found.each_error, strict=True)
        ]

    def point(self, rule: str, source: RowSource) -> SweepPoint:
        """The mean of the rule over the rows."""
        passages, found = np.asarray(source.passages), self.found
        return SweepPoint.of(self.setting, rule, found.each, self.reason, passages, found.error)

    def timing(self, rule: str) -> dict[str, Any]:
        """Seconds a call and mean acceptance of the rule."""
        found, known = self.found, self.found.draws > 0
        return {
            "rule": rule,
            "top_k": self.setting.top_k,
            "n": self.setting.n,
            "seconds": found.seconds if known else None,
            "acceptance": float(found.each.mean()) if known else None,
            "acceptance_half_width": found.error if known else None,
            "reason": self.said,
        }


def measure_own(
    rule: str, source: RowSource, grid: Grid, report: Callable[[str, int], None]
) -> Iterator[Measured]:
    """Audit a rule under each setting, and sample its acceptance on the rows.

    Parameters
    ----------
    rule : str
        FILE.py:FUNCTION, called as `otlp.audit` calls it, in a process of its own.
    source : RowSource
    grid : Grid
        Its time limit is that of the draws of a setting, where the interval stays wide.
    report : callable
        Called with words, and with how many settings are done.
    """
    for done, setting in enumerate(grid.settings, 1):
        limit = grid.time_limit * (1 + len(source.numbers))
        work = partial(_audit_and_sample, rule, source, grid, setting)
        try:
            audited, found = run_in_child(work, limit, lambda *told: None)
            yield Measured(setting, found, _reason(audited, found, tiny(setting.n)), audited)
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
    ends = float(max(0.0, mean - error)), float(min(1.0, mean + error))
    return {"acceptance": float(mean), "acceptance_interval": ends}


def _audit_and_sample(
    rule: str, source: RowSource, grid: Grid, setting: SweepSetting, progress: Callable[..., None]
) -> tuple[AuditReport, SampledAcceptance]:
    """The audit of a rule, and its sampled acceptance on each row."""
    sys.stdout = sys.stderr  # what a rule prints is no part of the table
    function = load_function(rule, "--rules")
    small, rng = made_up(setting), np.random.default_rng(1)
    report = audit(function, small.target, small.drafts)
    problems = []
    for _, capture in source.part(0, len(source.numbers)):
        p, q = capture.distributions(
            0,
            setting.temperature,
            grid.draft_temperature,
            setting.top_k,
            grid.top_p,
            **grid.sampling,
        )
        problems.append(Problem(p, make_scheme(setting.scheme, q, setting.n)))
    return report, sample_acceptance(function, problems, PRECISION, grid.time_limit, rng)


def _reason(report: AuditReport, found: SampledAcceptance, tokens: int) -> str:
    """What is against a rule; empty where it was proved lossless, and does as well on the rows."""
    if report.passed and found.deviating.any():
        return (
            f"{LOSSY} on {np.count_nonzero(found.deviating)} of the rows: its outputs do not "
            f"follow the target there (G-test, false-alarm rate {RATE:g})"
        )
    if report.method != "sampling" and report.passed:
        return ""
    if report.passed:
        return f"no proof that it is lossless, it was sampled: {report.why_sampled}"
    wrong = next(iter(report.failures), f"total variation {report.total_variation:.3g}")
    return f"{LOSSY} on {tokens} made-up tokens ({report.verdict.name}): {wrong}"
