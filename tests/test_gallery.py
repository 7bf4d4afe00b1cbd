"""The gallery scripts run, and each is on its page with its figure."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

GALLERY = Path(__file__).parent.parent / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*.py"))
SLOW = {
    *("cascades", "certified_gap", "easy_and_hard", "one_row", "paths_against_lp"),
    *("published_limits", "siblings", "temperature", "top_k", "wrong_rule"),
}
"""Scripts that take half a second or more."""
LONG = "published_limits"
"""Scripts that take half a minute."""


def marks(script: Path) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] * (script.stem in SLOW)
    return slow + [pytest.mark.long] * (script.stem == LONG)


@pytest.mark.parametrize(
    "script",
    [pytest.param(script, marks=marks(script)) for script in SCRIPTS],
    ids=lambda script: script.stem,
)
def test_the_script_ends_in_its_figure(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    assert [path.name for path in tmp_path.iterdir()] == [f"{script.stem}.svg"]
    drawn = ElementTree.parse(tmp_path / f"{script.stem}.svg")
    shown = ElementTree.parse(script.with_suffix(".svg"))
    assert texts(drawn) == texts(shown), "the figure on the page is another: remake it"


def texts(svg: ElementTree.ElementTree) -> set[str]:
    """Return the texts of a figure without numbers."""
    found = {
        "".join(node.itertext()).strip() for node in svg.iter("{http://www.w3.org/2000/svg}text")
    }
    return {text for text in found if any(letter.isalpha() for letter in text)}


def test_every_script_stands_on_the_page_once() -> None:
    page = (GALLERY / "index.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 12
    for script in SCRIPTS:
        assert page.count(f"]({script.name})\n") == page.count(f"]({script.stem}.svg)\n") == 1
        assert 15 <= len(script.read_text(encoding="utf-8").splitlines()) <= 55
    assert {path.stem for path in GALLERY.glob("*.svg")} == {path.stem for path in SCRIPTS}
