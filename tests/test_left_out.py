"""Skipped tests are counted by reason; with the CI option an unlisted reason fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.left_out import unlisted
from tests.processes import ROOT

FILES = {
    "test_one.py": "import pytest\n@pytest.mark.parametrize('n', range(3))\n"
    "def test(n):\n    n and pytest.skip('REASON')\n",
    "test_two.py": "import pytest\npytest.skip('REASON', allow_module_level=True)\n",
    "test_three.py": "import pytest\npytest.importorskip('playwright_of_none')\n",
}


def run(folder: Path, reason: str, *options: str) -> tuple[int, list[str]]:
    """Return exit status and output lines of a run of `FILES`."""
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("REASON", reason))
    words = ["-p", "tests.left_out", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *options, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},  # ignore the options of the outer run
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


LINE = "2 tests, 1 whole file: it rains"


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "it rains")
    assert status == 0 and LINE in lines
    assert any(line.startswith("1 whole file: could not import 'playwright_o") for line in lines)


def test_and_held_to_the_list(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason='pip install -e ".[dev]"')
    status, lines = run(tmp_path, "it rains", "-n", "1", "--nothing-else-left-out")
    assert status == 1 and f"{LINE}  <- not in the list of tests/left_out.py" in lines
    assert unlisted({"no files of 512 GB": Counter(test=1), "no": Counter(test=1)}) == ["no"]
