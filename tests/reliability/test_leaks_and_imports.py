"""No memory leaks, and read-only folders work; tests/test_arrows.py tests the imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import otlp
from tests.processes import run_python

PACKAGE = Path(otlp.__file__).parent

LOOP = """
import gc, os, sys
import numpy as np
import otlp

def pages():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

def solve(seed):
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.ones(30), size=2)
    problem = otlp.Problem(target, otlp.IID(draft, 2))
    solution = otlp.solve(problem, sys.argv[1])
    row = problem.drafts.sample(rng)
    solution.plan.conditional(row)
    solution.plan.sample(row, rng)

for seed in range(400):
    solve(seed)
before = pages()
for seed in range(int(sys.argv[2])):
    solve(seed)
print((pages() - before) * os.sysconf("SC_PAGE_SIZE"))
"""


SLOW, LONG = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.long]
MORE = ("linear-program", "max-flow", "orderings", "global-resolution")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize(
    "solver",
    [
        "martingale",
        pytest.param("slackness", marks=SLOW),
        *(pytest.param(name, marks=LONG) for name in MORE),
    ],
)
def test_two_thousand_solves_keep_no_memory(solver: str) -> None:
    grown = int(run_python("-c", LOOP, solver, 2000))
    # A leak of 1 kB per solve would be 2 MB; allocators keep a few pages.
    assert grown < 1_000_000, f"{grown:,} bytes"


SOLVE = """
import otlp
problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
assert abs(otlp.solve(problem).acceptance - 0.85) < 1e-9
"""
NOT_KEPT = """
from otlp.drafts import iid
assert iid._priority_marginals.dispatcher.stats.cache_path is None
"""


@pytest.mark.slow
def test_a_read_only_package_and_home_solve_all_the_same() -> None:
    as_nobody: list[str] = []
    if os.geteuid() == 0:  # root may write anywhere
        if shutil.which("setpriv") is None:
            pytest.skip("running as root, and there is no setpriv to become someone else")
        as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"]
        numpy = subprocess.run([*as_nobody, sys.executable, "-c", "import numpy"], cwd="/")
        if numpy.returncode:
            pytest.skip(f"only root may read {sys.prefix}: let other users read it")
    with tempfile.TemporaryDirectory() as folder:
        package, home = Path(folder) / "site" / "otlp", Path(folder) / "home"
        ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
        shutil.copytree(PACKAGE, package, ignore=ignored)
        home.mkdir()
        everything = [Path(folder), *Path(folder).rglob("*")]
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
        environment |= {"HOME": str(home), "PYTHONPATH": str(package.parent)}
        code = SOLVE + NOT_KEPT + f"assert otlp.__file__.startswith({str(package)!r})"
        command = [*as_nobody, sys.executable, "-B", "-c", code]
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)
        for path in everything:
            path.chmod(0o755)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    run_python(SOLVE, NUMBA_CACHE_DIR=str(blocked / "cache"))
