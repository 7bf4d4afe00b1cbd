"""Hypothesis draws the same examples in every run of one version of a test; one thread a process.

So what passes here passes in CI. `pytest --hypothesis-profile=explore` draws new ones, and `long`
many. Problems here are small: a second thread of PyTorch's would only spin, and
the processes of `pytest -n` would wait for each other's.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.left_out", "tests.not_again")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is, by whichever test is first
# How long an example takes says nothing about whether it is right.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
untimed = settings.get_profile("untimed")
settings.register_profile("repeatable", untimed, derandomize=True, max_examples=50)
settings.register_profile("explore", untimed, derandomize=False)
settings.register_profile("long", untimed, derandomize=False, max_examples=20_000)
settings.load_profile("repeatable")

TESTS = Path(__file__).parent
CORE = (
    *("otlp/certificate", "otlp/data", "otlp/drafts", "otlp/export", "otlp/numerics", "otlp/plan"),
    *("otlp/problem", "otlp/reductions", "otlp/solvers", "otlp/parallel"),
)


def of_core(path: Path) -> bool:
    """Whether a file of tests lies in a folder of the core."""
    return path.relative_to(TESTS).as_posix().replace("/test_", "/").startswith(CORE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only the core or the slow are asked for, import nothing else: PyTorch takes seconds."""
    if not collection_path.is_file():
        return None
    asked = config.option.markexpr
    other = asked == "core" and not of_core(collection_path)
    if asked in ("slow", "long") or asked.startswith("slow and"):
        other |= "slow" not in collection_path.read_text("utf-8")
    return True if other else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests of the core as such, by the folder they lie in."""
    for item in items:
        if of_core(item.path) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.core)


@pytest.fixture
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And real calls, of rules that remember nothing; tests without it make them all."""
    monkeypatch.setattr("otlp.auditing.enumeration.REPETITIONS", 50)
    monkeypatch.setattr("otlp.auditing.real_calls.CALLS", 500)


@pytest.fixture(scope="module")
def trained() -> Any:
    """Draft and target of the trained pair."""
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
    from otlp.decode.models.loading import load_pair

    return load_pair(device="cpu")


@pytest.fixture(scope="session", params=["ortools", "graph-tool"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of maximum flows; graph-tool where it can be had."""
    from otlp.errors import EngineNotFoundError
    from otlp.solvers.engines import graph_tool

    if request.param == "graph-tool":
        try:
            graph_tool.load()
        except EngineNotFoundError as error:
            pytest.skip(f"needs graph-tool: {error}")
    return str(request.param)
