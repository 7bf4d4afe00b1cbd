"""Skipped tests are counted by reason; with the CI option an unlisted reason fails the run."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.left_out import unlisted

FILES = {
    "test_one": "import pytest\n@pytest.mark.parametrize('n', range(3))\n"
    "def test(n):\n    n and pytest.skip('REASON')\n",
    "test_two": "import pytest\npytest.skip('REASON', allow_module_level=True)\n",
    "test_three": "import pytest\npytest.importorskip('playwright_of_none')\n",
}


@pytest.fixture(autouse=True)
def own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the options of the outer run."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # these take half a second


def run(pytester: pytest.Pytester, reason: str, *options: str) -> tuple[int, list[str]]:
    """Return exit status and output lines of a run of `FILES`."""
    pytester.makepyfile(**{name: text.replace("REASON", reason) for name, text in FILES.items()})
    words = ("-p", "tests.left_out", "-p", "no:cacheprovider")
    done = pytester.runpytest_inprocess(*words, *options)
    return int(done.ret), done.outlines


LINE = "2 tests, 1 whole file: it rains"


def test_what_is_left_out_is_said(pytester: pytest.Pytester) -> None:
    status, lines = run(pytester, "it rains")
    assert status == 0 and LINE in lines
    assert any(line.startswith("1 whole file: could not import 'playwright_o") for line in lines)


def test_and_held_to_the_list(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason='pip install -e ".[dev]"')
    status, lines = run(pytester, "it rains", "-p", "xdist", "-n", "1", "--nothing-else-left-out")
    assert status == 1 and f"{LINE}  <- not in the list of tests/left_out.py" in lines
    assert unlisted({"no files of 512 GB": Counter(test=1), "no": Counter(test=1)}) == ["no"]
