"""What passed in an environment that has nothing else is not run again in one that has all.

But for the tests of what resolves, which is another question in another environment.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RESOLVES = {"test_arrows", "test_packaging", "test_reference"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options that CI gives."""
    parser.addoption("--passed-into", type=Path, help="a file for the names of what passes")
    parser.addoption("--not-again", type=Path, help="such a file, whose tests are left out")


def passed(config: pytest.Config) -> set[str]:
    """Names of tests that passed, and of files all of whose tests did; none without the option."""
    file = config.getoption("not_again")
    return set(file.read_text().splitlines()) if file else set()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files: nothing of them is imported."""
    if collection_path.suffix != ".py" or collection_path.stem in RESOLVES:
        return None
    name = os.path.relpath(collection_path, config.rootpath)
    return True if name in passed(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the file lists."""
    known = passed(config)
    again = [item for item in items if item.nodeid not in known or item.path.stem in RESOLVES]
    if len(again) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(again)])
        items[:] = again


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what passed; a worker of xdist has no reporter, and nothing to write."""
    file = session.config.getoption("passed_into")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if file is not None and reporter is not None:
        names = {report.nodeid for report in reporter.stats.get("passed", ())}
        other = {item.path for item in session.items if item.nodeid not in names}
        whole = {item.path for item in session.items} - other
        names |= {os.path.relpath(path, session.config.rootpath) for path in whole}
        file.write_text("".join(f"{name}\n" for name in sorted(names)))
