"""Results of a strict type checker on scripts outside the checkout that use the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, run_python

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WRONG = """\
import otlp

problem = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], n=2))
otlp.solve(problem, "martingal")
otlp.solve(problem, "orderings", gab=1e-3)
otlp.solve(problem, "orderings", gap="small")
otlp.solve([0.5, 0.5], [0.5, 0.5])
alpha, subset = otlp.optimal_acceptance(problem)
"""


def strictly(folder: Path, *names: str) -> str:
    # Use the settings and the cache of the checkout, so that nothing is parsed twice.
    given = f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"
    command = [sys.executable, "-m", "mypy", *given, *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_examples_pass_and_mistakes_are_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason='pip install -e ".[dev]"')
    for example in EXAMPLES:
        (tmp_path / example.name).write_text(example.read_text(encoding="utf-8"))
    (tmp_path / "wrong.py").write_text(WRONG)
    found = strictly(tmp_path, ".")
    lines = {int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line}
    assert lines == set(range(4, 9)), found
    assert all(line.startswith("wrong.py") for line in found.splitlines() if ": error:" in line)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_outside_the_checkout(example: Path, tmp_path: Path) -> None:
    (tmp_path / example.name).write_text(example.read_text(encoding="utf-8"))
    assert "no rule accepts more than" in run_python("-m", example.stem, folder=tmp_path)
