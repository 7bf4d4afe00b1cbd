"""A skipped test is counted by its reason, and fails a run that may skip no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

FILES = {
    "test_one.py": "import pytest\n@pytest.mark.parametrize('n', range(3))\n"
    "def test(n):\n    n and pytest.skip('REASON')\n",
    "test_two.py": "import pytest\npytest.skip('REASON', allow_module_level=True)\n",
    "test_three.py": "import pytest\npytest.importorskip('playwright_of_none')\n",
}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_out_is_said_and_held_to_the_list(tmp_path: Path, workers: str) -> None:
    pytest.importorskip("xdist", reason='pip install -e ".[dev]"')

    def ran(reason: str, *options: str) -> tuple[int, list[str]]:
        for name, text in FILES.items():
            (tmp_path / name).write_text(text.replace("REASON", reason))
        words = ["-p", "tests.left_out", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, "-n", workers, *options, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout.splitlines()

    said = "2 tests, 1 whole file: it rains"
    status, lines = ran("it rains")
    assert status == 0 and said in lines
    assert any(line.startswith("1 whole file: could not import 'playwright_o") for line in lines)
    status, lines = ran("it rains", "--nothing-else-left-out")
    assert status == 1 and f"{said}  <- not in the list of tests/left_out.py" in lines
    assert ran("no files of 512 GB", "--nothing-else-left-out")[0] == 0
