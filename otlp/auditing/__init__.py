"""Audit of a verification rule: whether the rule is lossless, and its drafts follow their scheme.

`enumeration` follows every random draw of a program, with a `random_source` that returns a
`lazy_uniform` for each uniform number; `hidden_inputs` detects other sources of randomness.
`gtest` tests counts against a distribution; `draft_check` compares drafted tuples with a scheme.
An `audited_rule` is a rule over one token (`audited_token_rule`) or over paths and trees
(`audited_round_rule`).  `auditor` audits the rule by enumeration (`exact`, `real_calls`) if
possible, otherwise by sampling (`sampled`), and returns a `report`.
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
