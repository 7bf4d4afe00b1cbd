"""What passed in an environment that has nothing else is not run again in one that has all.

But for the tests of what resolves, which is another question in another environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

RESOLVES = {"test_arrows", "test_packaging", "test_reference"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options that CI gives."""
    parser.addoption("--passed-into", type=Path, help="a file for the names of what passes")
    parser.addoption("--not-again", type=Path, help="such a file, whose tests are left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the file lists."""
    if (file := config.getoption("not_again")) is None:
        return
    passed = set(file.read_text().splitlines())
    again = [item for item in items if item.nodeid not in passed or item.path.stem in RESOLVES]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(again)])
    items[:] = again


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what passed; a worker of xdist has no reporter, and nothing to write."""
    file = session.config.getoption("passed_into")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if file is not None and reporter is not None:
        names = [report.nodeid for report in reporter.stats.get("passed", ())]
        file.write_text("".join(f"{name}\n" for name in names))
