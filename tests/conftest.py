"""Hypothesis draws the same examples in every run of one version of a test; one thread a process.

So what passes here passes in CI. `pytest --hypothesis-profile=explore` draws new ones, and so does
`python -m tests.fuzz`. Problems here are small: a second thread of PyTorch's would only spin, and
the processes of `pytest -n` would wait for each other's.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("repeatable")

TESTS = Path(__file__).parent
CORE = ("solvers", "reductions", "otlp/certificate", "otlp/problem")
CORE += tuple(f"otlp/{name}" for name in ("data", "drafts", "export", "numerics", "plan", "sweeps"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests of the core as such, by the folder they lie in."""
    for item in items:
        where = item.path.relative_to(TESTS).as_posix().replace("/test_", "/")
        if where.startswith(CORE) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.core)
