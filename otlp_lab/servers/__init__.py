"""Audit of a running server against a baseline, such as the same server without drafts.

`completions` requests texts from a server, in threads of `background`.  `pairs` collects texts of
both sides until `betting` decides.  `independence` tests whether texts are independent, `power`
computes the detectable bias, and `report` formats the result.
"""

from otlp_lab.servers.completions import Completion, Completions
from otlp_lab.servers.pairs import Pair, audit_server, planted
from otlp_lab.servers.report import ServerReport

__all__ = ["Completion", "Completions", "Pair", "ServerReport", "audit_server", "planted"]
