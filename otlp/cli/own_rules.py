"""Rules of a user's file beside the solvers: audited first, then measured on the same rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import AuditReport, audit
from otlp.cli.acceptances import LOSSY
from otlp.cli.audit import load_function
from otlp.cli.child import ChildError, run_in_child
from otlp.drafts.by_name import make_scheme
from otlp.studies.points import SweepPoint, SweepSetting
from otlp.studies.sweep import Grid
from otlp.sweeps.rows import CaptureRows

SAMPLES = 2000
"""Drafts that are verified on each row."""

TINY = 5
"""Tokens of the problem that a rule is audited on."""


def measure_own(
    rule: str, source: CaptureRows, grid: Grid, progress: Callable[[str, int], None]
) -> Iterator[tuple[SweepPoint, list[dict[str, Any]]]]:
    """Audit a rule under each setting, and sample its acceptance on the rows.

    Parameters
    ----------
    rule : str
        FILE.py:FUNCTION, called as `otlp.audit` calls it, in a process of its own.
    source : CaptureRows
    grid : Grid
        Its time limit holds for the audit, and for each row.
    progress : callable
        Called with words, and with how many settings are done.

    Yields
    ------
    point, records : SweepPoint, list of dict
        The mean over the rows, and what was found on each.
    """
    for done, setting in enumerate(grid.settings, 1):
        try:
            limit = grid.time_limit * (1 + len(source.numbers))
            work = partial(_audit_and_sample, rule, source, grid, setting)
            report, accepted = run_in_child(work, limit, lambda *told: None)
            reason = _reason(report)
        except ChildError as error:
            accepted, reason = [math.nan] * len(source.numbers), str(error)
        said = {"rule": rule, "guarantee": "" if reason else "LOSSLESS", "reason": reason}
        where = {"scheme": setting.scheme, "n": setting.n, "first_draft": None}
        records = [
            {"row": row, **where, **said, "acceptance": None if math.isnan(found) else found}
            for row, found in zip(source.numbers, accepted, strict=True)
        ]
        values = np.array(accepted)
        yield SweepPoint.of(setting, rule, values, reason, np.asarray(source.passages)), records
        progress(f"{rule}, {setting.scheme}, n = {setting.n}", done)


def _audit_and_sample(
    rule: str, source: CaptureRows, grid: Grid, setting: SweepSetting, progress: Callable[..., None]
) -> tuple[AuditReport, list[float]]:
    """The audit of a rule, and its sampled acceptance on each row."""
    sys.stdout = sys.stderr  # what a rule prints is no part of the table
    function = load_function(rule, "--rules")
    p, q = np.random.default_rng(0).dirichlet(np.ones(TINY), size=2)
    report = audit(function, p, make_scheme(setting.scheme, q, setting.n))
    accepted = []
    for _, capture in source.part(0, len(source.numbers)):
        p, q = capture.distributions(
            0, setting.temperature, grid.draft_temperature, setting.top_k, grid.top_p
        )
        scheme = make_scheme(setting.scheme, q, setting.n)
        found = audit(function, p, scheme, max_paths=0, samples=SAMPLES)
        accepted.append(found.acceptance)
    return report, accepted


def _reason(report: AuditReport) -> str:
    """What an audit has against a rule; empty where it proved that it is lossless."""
    if report.method != "sampling" and report.passed:
        return ""
    if report.passed:
        return f"no proof that it is lossless, it was sampled: {report.why_sampled}"
    wrong = next(iter(report.failures), f"total variation {report.total_variation:.3g}")
    return f"{LOSSY} on {TINY} made-up tokens ({report.verdict.name}): {wrong}"
