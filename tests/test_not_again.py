"""Only tests that passed elsewhere are deselected, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

TWO = "import pytest\n@pytest.mark.parametrize('n', [0, 1])\ndef test(n):\n    assert n < LIMIT\n"


def test_what_passed_is_left_out_and_what_failed_is_not(tmp_path: Path) -> None:
    def run(limit: int, *options: str) -> str:
        (tmp_path / "test_two.py").write_text(TWO.replace("LIMIT", str(limit)))
        words = ["-p", "tests.not_again", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *options, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()[-1]

    file = tmp_path / "passed"
    assert "1 failed, 1 passed" in run(1, f"--passed-into={file}")
    assert file.read_text() == "test_two.py::test[0]\n"
    more = tmp_path / "more"
    assert "1 passed, 1 deselected" in run(2, f"--not-again={file}", f"--passed-into={more}")
    assert more.read_text() == "test_two.py\ntest_two.py::test[1]\n"
    assert "no tests ran" in run(2, f"--not-again={more}")
