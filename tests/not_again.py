"""Skip tests that passed in the minimal environment when running in the full environment.

Tests that resolve names or packages always run, because their result depends on the environment.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RESOLVES = {"test_arrows", "test_packaging", "test_reference"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options used in CI."""
    parser.addoption("--passed-into", type=Path, help="file to write the names of passed tests to")
    parser.addoption("--not-again", type=Path, help="file with names of tests to deselect")


def passed(config: pytest.Config) -> set[str]:
    """Return names of passed tests and of fully passed files; empty without the option."""
    file = config.getoption("not_again")
    return set(file.read_text().splitlines()) if file else set()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore fully passed files, so that they are not imported."""
    if collection_path.suffix != ".py" or collection_path.stem in RESOLVES:
        return None
    name = os.path.relpath(collection_path, config.rootpath)
    return True if name in passed(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests listed in the file."""
    known = passed(config)
    remaining = [item for item in items if item.nodeid not in known or item.path.stem in RESOLVES]
    if len(remaining) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(remaining)])
        items[:] = remaining


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the names of passed tests; only the main process has a reporter, not the workers."""
    file = session.config.getoption("passed_into")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if file is not None and reporter is not None:
        names = {report.nodeid for report in reporter.stats.get("passed", ())}
        kinds = pytest.TestReport, pytest.CollectReport
        reports = [one for found in reporter.stats.values() for one in found]
        other = {one.nodeid for one in reports if isinstance(one, kinds)} - names
        names |= {_file(name) for name in names} - {_file(name) for name in other}
        file.write_text("".join(f"{name}\n" for name in sorted(names)))


def _file(name: str) -> str:
    return name.partition("::")[0]
