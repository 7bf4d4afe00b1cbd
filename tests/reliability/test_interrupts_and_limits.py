"""Ctrl-C, time limits and memory limits, each measured in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import ROOT, alive, children

SLACK = 1.0
"""Maximum delay of Ctrl-C, in seconds."""

LATE = 2.0
"""Maximum delay of a time limit in seconds, on a machine that also runs other tests."""

TRIES = 6
"""Number of attempts, of which one must be in time: other processes may use the processor."""

PROBLEM = """
import signal, sys, time
import numpy as np
import otlp

# shells start what runs in the background with Ctrl-C ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

def problem(tokens, n, scheme="iid"):
    rng = np.random.default_rng(0)
    target, draft = rng.dirichlet(np.ones(tokens), size=2)
    drafts = otlp.IID(draft, n) if scheme == "iid" else otlp.WithoutReplacement(draft, n)
    return otlp.Problem(target, drafts)

def warm(solver, scheme="iid", **options):
    otlp.solve(problem(5, 2, scheme), solver, **options)
    otlp.solve(problem(5, 3, scheme), solver, **options)
"""

GRAPH_TOOL = {"engine": "graph-tool"}
LONG: dict[str, tuple[str, int, int, dict[str, str]]] = {
    "linear program": ("linear-program", 100, 3, {}),
    "linear program with many sets": ("linear-program", 1000, 2, {}),
    "flow": ("max-flow", 240, 3, {}),
    "flow by graph-tool": ("max-flow", 160, 3, GRAPH_TOOL),
    "two flows": ("slackness", 320, 3, {}),
}

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are counted in /proc"
)


def start(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROBLEM + code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture(params=LONG)
def long(request: pytest.FixtureRequest) -> tuple[str, int, int, dict[str, str]]:
    """Return the parameters of a long solve; skip if its engine is not installed."""
    if LONG[request.param][-1] == GRAPH_TOOL:
        pytest.importorskip("graph_tool", reason="needs graph-tool: see docs/install.md")
    return LONG[request.param]


def seconds_to_stop(solver: str, tokens: int, n: int, options: dict[str, str]) -> float:
    """Return the seconds from Ctrl-C to the end of a process; no engine may remain."""
    code = f"""
warm({solver!r}, **{options})
case = problem({tokens}, {n})
print("ready", flush=True)
try:
    while True:
        otlp.solve(case, {solver!r}, **{options})
except KeyboardInterrupt:
    print("stopped", flush=True)
    raise SystemExit(7)
"""
    process = start(code)
    time.sleep(3.0)
    below = children(process.pid)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    output, _ = process.communicate(timeout=100)
    took = time.monotonic() - began
    assert output == "stopped\n" and process.returncode == 7
    time.sleep(0.2)
    assert not [child for child in below if alive(child)]
    return took


@pytest.mark.slow
def test_ctrl_c_ends_a_long_solve(long: tuple[str, int, int, dict[str, str]]) -> None:
    took: list[float] = []
    while len(took) < TRIES and min(took, default=SLACK) >= SLACK:
        took.append(seconds_to_stop(*long))
    assert min(took) < SLACK, took


@pytest.mark.slow
def test_a_killed_caller_leaves_no_engine(long: tuple[str, int, int, dict[str, str]]) -> None:
    solver, tokens, n, options = long
    process = start(
        f"""
warm({solver!r}, **{options})
case = problem({tokens}, {n})
print("ready", flush=True)
otlp.solve(case, {solver!r}, **{options})
"""
    )
    until = time.monotonic() + 60.0
    while not (below := children(process.pid)) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)
    assert process.poll() is None and below, "no engine is at work"
    process.kill()
    process.communicate()
    time.sleep(SLACK)
    left = [child for child in below if alive(child)]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left


def limited(solver: str, tokens: int, n: int, scheme: str, seconds: float) -> tuple[float, str]:
    code = f"""
warm({solver!r}, {scheme!r})
case = problem({tokens}, {n}, {scheme!r})
print("ready", flush=True)
began = time.monotonic()
solution = otlp.solve(case, {solver!r}, time_limit={seconds}, throw=False)
print(time.monotonic() - began, solution.status.name)
"""
    process = start(code)
    output, _ = process.communicate(timeout=300)
    took, status = output.split()
    return float(took), status


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, pytest.param(3.0, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("solver", "tokens", "n", "scheme"),
    [
        ("linear-program", 100, 3, "iid"),
        ("linear-program", 1000, 2, "iid"),
        ("max-flow", 240, 3, "iid"),
        ("slackness", 240, 3, "iid"),
        ("orderings", 128_256, 64, "without replacement"),
        ("orderings", 1_000_000, 8, "without replacement"),
        ("orderings", 20_000, 8, "iid"),
    ],
)
def test_a_time_limit_is_kept(
    solver: str, tokens: int, n: int, scheme: str, seconds: float
) -> None:
    late: list[float] = []
    while len(late) < TRIES and min(late, default=LATE) >= LATE:
        took, status = limited(solver, tokens, n, scheme, seconds)
        assert took <= seconds + LATE or status == "TIME_LIMIT"
        late.append(took - seconds)
    assert min(late) < LATE, late


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver", [pytest.param("linear-program", marks=pytest.mark.long), "max-flow", "slackness"]
)
def test_a_memory_limit_is_kept(solver: str) -> None:
    # The largest problem within the memory limit; the engine may be a separate process.
    limit = 600 * 1024**2
    code = f"""
import os

def resident(process):
    found = 0
    with open(f"/proc/{{process}}/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                found = 1024 * int(line.split()[1])
    with open(f"/proc/{{process}}/task/{{process}}/children") as file:
        return found + sum(resident(child) for child in file.read().split())

warm({solver!r})
made = otlp.solvers.make_solver({solver!r}, memory_limit={limit})
low, high = 10, 5000
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if made.supports(problem(middle, 2)) else (low, middle)
case = problem(low, 2)
before = resident(os.getpid())
print("ready", flush=True)
solution = made.solve(case)
print(before, resident(os.getpid()), low, solution.status.name)
"""
    process = start(code)
    output, _ = process.communicate(timeout=500)
    before, after, tokens, status = output.split()
    assert status == "SOLVED"
    assert int(tokens) > 100
    assert int(after) - int(before) <= 1.15 * limit, (
        f"{(int(after) - int(before)) / 1024**2:.0f} MiB for {tokens} tokens"
    )


def test_a_problem_beyond_the_memory_limit_is_refused_before_it_is_listed() -> None:
    code = """
import os, resource
made = [otlp.solvers.make_solver(name) for name in ("linear-program", "max-flow", "slackness")]
case = problem(20_000, 3)
print("ready", flush=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for solver in made:
    assert not solver.supports(case)
    try:
        solver.solve(case)
    except otlp.errors.UnsupportedProblemError as error:
        assert "memory_limit" in str(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    process = start(code)
    output, _ = process.communicate(timeout=100)
    assert int(output) < 100 * 1024
