"""Shared fixtures, Hypothesis profiles and test selection.

By default, Hypothesis draws the same examples in every run, so that local runs and CI agree.
`pytest --hypothesis-profile=thorough` draws four times as many examples, `explore` new ones, and
`long` 400 times as many.  PyTorch uses one thread per process: the problems are small, and more
threads would compete with `pytest -n`.
"""

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import USUAL

pytest_plugins = ("pytester", "tests.left_out", "tests.not_again")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, by any test
# Slow examples must not fail: these tests do not measure time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
untimed = settings.get_profile("untimed")
settings.register_profile("repeatable", untimed, derandomize=True, max_examples=USUAL)
settings.register_profile("thorough", settings.get_profile("repeatable"), max_examples=4 * USUAL)
settings.register_profile("explore", untimed, derandomize=False)
settings.register_profile("long", untimed, derandomize=False, max_examples=20_000)
settings.load_profile("repeatable")

TESTS = Path(__file__).parent
CORE = (
    *("otlp/certificate", "otlp/data", "otlp/drafts", "otlp/export", "otlp/numerics", "otlp/plan"),
    *("otlp/problem", "otlp/reductions", "otlp/solvers", "otlp/parallel"),
)


def in_core(path: Path) -> bool:
    """Return whether a test file is in a folder of the core."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return name.replace("/test_", "/").startswith(CORE)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes: none for named files, otherwise one per core.

    Each process starts with its own part of the suite, so that two processes rarely compile the
    same kernel.
    """
    if config.args_source is config.ArgsSource.ARGS and any(".py" in name for name in config.args):
        config.option.dist = "no"
        return 0
    config.option.dist = "worksteal"
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip other files if only core or slow tests are selected: importing PyTorch takes seconds."""
    if not collection_path.is_file():
        return None
    asked = config.option.markexpr
    other = asked == "core" and not in_core(collection_path)
    if asked in ("slow", "long") or asked.startswith("slow and"):
        other |= "slow" not in collection_path.read_text("utf-8")
    return True if other else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker core to fast tests in the folders of the core."""
    for item in items:
        if in_core(item.path) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.core)


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collections, which took 8% of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter destroy modules at its end: extensions report leaks otherwise."""
    gc.unfreeze()


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the number of real calls in audits, and of samples after a finding."""
    monkeypatch.setattr("otlp.auditing.real_calls.CALLS", 200)
    monkeypatch.setattr("otlp.auditing.auditor.CALLS", 1_000)


@pytest.fixture
def few_repetitions(few_calls: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the number of repetitions and real calls in audits."""
    monkeypatch.setattr("otlp.auditing.enumeration.REPETITIONS", 20)


@pytest.fixture
def rough_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample acceptances of own rules to a half-width of 0.02 instead of 0.002."""
    for module in ("own_rules", "acceptances"):
        monkeypatch.setattr(f"otlp.cli.{module}.PRECISION", 0.02)


@pytest.fixture(scope="module")
def trained() -> Any:
    """Return draft and target of the trained pair."""
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
    from otlp.decode.models.loading import load_pair

    return load_pair(device="cpu")


@pytest.fixture(scope="session", params=["ortools", "graph-tool"])
def engine(request: pytest.FixtureRequest) -> str:
    """Name of each max-flow engine; skip graph-tool if it is not installed."""
    from otlp.errors import EngineNotFoundError
    from otlp.solvers.engines import graph_tool

    if request.param == "graph-tool":
        try:
            graph_tool.load()
        except EngineNotFoundError as error:
            pytest.skip(f"needs graph-tool: {error}")
    return str(request.param)
