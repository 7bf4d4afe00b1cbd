"""Audit any verification rule: whether it is lossless, and its drafts follow what it is told.

One idea a file: `enumeration` follows every random draw of a program, by way of a `random_source`
and `undecided` numbers, and watches for what is `hidden` from it; `gtest` tests counts against a
law; `draft_check` compares drafted tuples with a scheme.  A `subject`, over one token
(`token_subject`) or over paths and trees (`round_subject`), is audited as `exact` as can be, and
by `real_calls`, or `sampled`; `auditor` chooses, and a `report` says what was found.  `engines`
are rules of other people's.
"""

from otlp.auditing.auditor import audit, audit_rounds
from otlp.auditing.command import CommandRule
from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.drafted_tree import DraftedPaths, DraftedTree
from otlp.auditing.gtest import GTest
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.settings import AuditSettings

__all__ = [
    "AuditReport",
    "AuditSettings",
    "CommandRule",
    "DraftCheck",
    "DraftedPaths",
    "DraftedTree",
    "GTest",
    "Verdict",
    "audit",
    "audit_rounds",
]
