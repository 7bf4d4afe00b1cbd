"""Audit a running server: whether its texts follow those of a baseline, itself without drafts.

One idea a file: `completions` asks a server for texts, in the `background`, `pairs` takes them from
both sides until `betting` decides, `independence` is whether they were drawn anew, `power` what
would have been found, and `report` what was found.
"""

from otlp_lab.servers.completions import Completion, Completions
from otlp_lab.servers.pairs import Pair, audit_server, planted
from otlp_lab.servers.report import ServerReport

__all__ = ["Completion", "Completions", "Pair", "ServerReport", "audit_server", "planted"]
