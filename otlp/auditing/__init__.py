"""Audit any verification rule: whether it is lossless, and its drafts follow what it is told.

One idea a file: `enumeration` follows every random draw of a program, by way of a `random_source`
and `undecided` numbers, and watches for what is `hidden` from it; `gtest` tests counts against a
law; `draft_check` compares drafted tuples with a scheme.  A `subject` is audited as `exact` as can
be, or `sampled`; `auditor` chooses, and a `report` says what was found.
"""

from otlp.auditing.auditor import audit
from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.gtest import GTest
from otlp.auditing.report import AuditReport, Verdict

__all__ = ["AuditReport", "DraftCheck", "GTest", "Verdict", "audit"]
