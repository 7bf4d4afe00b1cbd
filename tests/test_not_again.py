"""Only tests that passed elsewhere are deselected, by name."""

from __future__ import annotations

import sys

import pytest

TWO = "import pytest\n@pytest.mark.parametrize('n', [0, 1])\ndef test(n):\n    assert n < LIMIT\n"


def test_what_passed_is_left_out_and_what_failed_is_not(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the file changes within a second

    def run(limit: int, *options: str) -> str:
        pytester.makepyfile(test_two=TWO.replace("LIMIT", str(limit)))
        words = ("-p", "tests.not_again", "-p", "no:cacheprovider")
        return pytester.runpytest_inprocess(*words, *options).outlines[-1]

    file, more = pytester.path / "passed", pytester.path / "more"
    assert "1 failed, 1 passed" in run(1, f"--passed-into={file}")
    assert file.read_text() == "test_two.py::test[0]\n"
    assert "1 passed, 1 deselected" in run(2, f"--not-again={file}", f"--passed-into={more}")
    assert more.read_text() == "test_two.py\ntest_two.py::test[1]\n"
    assert "no tests ran" in run(2, f"--not-again={more}")
