"""Audit any verification rule: whether it is lossless, and its drafts follow what it is told.

One idea a file: `enumeration` follows every random draw of a program, by way of a `random_source`
and `undecided` numbers, and watches for what is `hidden` from it; `gtest` tests counts against a
law; `draft_check` compares drafted tuples with a scheme.  A `subject` is audited as `exact` as can
be, or `sampled`; `auditor` chooses, and a `report` says what was found.  `rounds` does the same for
rules over several tokens, paths and trees; `engines` are such rules of other people's.
"""

from otlp.auditing.auditor import audit
from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.drafted_tree import DraftedPaths, DraftedTree
from otlp.auditing.gtest import GTest
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.round_report import RoundReport
from otlp.auditing.rounds import audit_rounds

__all__ = [
    "AuditReport",
    "DraftCheck",
    "DraftedPaths",
    "DraftedTree",
    "GTest",
    "RoundReport",
    "Verdict",
    "audit",
    "audit_rounds",
]
