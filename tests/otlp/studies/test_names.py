"""User-defined names in figures and tables, with special characters and any settings."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from otlp.cli.result_table import write_records
from otlp.studies.names import short_names
from tests.otlp.cli.command import done

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[plot]")
pytestmark = pytest.mark.usefixtures("rough_means", "few_repetitions")

RIGHT = """import numpy as np
def rule(draft_tokens, p, q, rng):
    token = draft_tokens[0]
    if rng.random() * q[token] <= p[token]:
        return token
    left = np.maximum(p - q, 0)
    return rng.choice(len(p), p=left / left.sum())
"""
PLAIN = "def rule(draft_tokens, p, q, rng):\n    return rng.choice(len(p), p=p)\n"
COMPARED = "compare mine.npz --n 1 --schemes iid --figure f.svg --json f.json".split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "mine.npz", p=[0.1, 0.6, 0.3], q=[0.5, 0.3, 0.2])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labels(folder: Path) -> set[str]:
    """Return all texts of the figure."""
    drawn = ElementTree.parse(folder / "f.svg").iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()) for text in drawn}


def test_short_names_tell_apart_what_is_not_the_same() -> None:
    names = ["a/x.py:f", "b/x.py:f", "x.py:f", "./x.py:f", "/a/x.py:f", "a/x.py:g", "k-seq", "m:f"]
    found = short_names(names)
    assert len(set(found.values())) == len(names)
    assert found["a/x.py:g"] == "x.py:g" and found["k-seq"] == "k-seq" and found["m:f"] == "m:f"
    assert found["b/x.py:f"] == "b/x.py:f"


@pytest.mark.parametrize(
    "names",
    [
        ["rule$1$2.py", "v$a_b_c$.py", "a&b<c>.py", "_own.py", "=x^2.py", "x\x1b.py"],
        pytest.param(["mine.py"], marks=pytest.mark.slow),
        pytest.param(["_own.py"], marks=pytest.mark.slow),
    ],
)
def test_names_stand_as_they_are(names: list[str], folder: Path) -> None:
    for name in names:
        (folder / name).write_text(PLAIN)
    done(*COMPARED, "--rules", ",".join(f"{name}:rule" for name in names), "--table", "f.csv")
    lines = list(csv.DictReader((folder / "f.csv").read_text().splitlines()))
    records = json.loads(Path("f.json").read_text())["results"]
    for name, line in zip(names, lines[-len(names) :], strict=True):
        known = name.replace("\x1b", "\\x1b")
        assert labels(folder) & {f"{known}:rule", f"./{known}:rule"}
        assert line["rule"] == ("'" if name.startswith("=") else "") + f"{name}:rule"
        assert f"{name}:rule" in {one["rule"] for one in records}


@pytest.mark.parametrize("command", ["compare", pytest.param("sweep", marks=pytest.mark.slow)])
def test_rules_of_one_file_name_have_their_folders(command: str, folder: Path) -> None:
    for place, text in (("old", PLAIN), ("new", RIGHT)):
        (folder / place).mkdir()
        (folder / place / "mine.py").write_text(text)
    both = {"old/mine.py:rule", "new/mine.py:rule"}
    done(command, *COMPARED[1:], "--table", "f.csv", "--rules", ",".join(sorted(both)))
    assert both <= labels(folder)
    lines = list(csv.DictReader((folder / "f.csv").read_text().splitlines()))
    found = {line["rule"]: float(line["acceptance"]) for line in lines if "mine" in line["rule"]}
    assert set(found) == both and found["new/mine.py:rule"] > found["old/mine.py:rule"] + 0.2


@pytest.mark.parametrize(
    "more",
    [
        {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MATPLOTLIBRC": "matplotlibrc"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"MPLBACKEND": "nonsense"}, marks=pytest.mark.slow),
    ],
)
def test_a_figure_is_the_same_whatever_the_user_has_set(more: dict[str, str], folder: Path) -> None:
    done(*COMPARED, "--rules", "naive")
    drawn = Path("f.svg").read_bytes()
    settings = "text.usetex: True\nfigure.facecolor: black\nfont.size: 30\nlines.linewidth: 9\n"
    (folder / "matplotlibrc").write_text(settings)
    words = [sys.executable, "-m", "otlp", *COMPARED, "--rules", "naive"]
    found = subprocess.run(words, env={**os.environ, **more}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert Path("f.svg").read_bytes() == drawn


def test_latex_writes_every_sign(tmp_path: Path) -> None:
    name = '[a]_b%c&d#e$f{g}h~i^j\\k<l>m|n"o\x1bp'
    write_records(tmp_path / "x.tex", [{"algorithm": name, "n": 2}])
    line = (tmp_path / "x.tex").read_text().splitlines()[4]
    assert line.startswith("{[}a{]}")
    assert not re.search(r"(?<!\\)[_%#$]|[~^<>|\x1b]", line.partition(" & ")[0])
