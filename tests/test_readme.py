"""Every command of the README works as printed; those that take minutes, on less."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.otlp.cli.command import done

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOUND = re.findall(r"(?:^|`|&& )(otlp [a-z-]+(?: [^`#\n]+)?)(?=[`\s#]|$)", README, re.M)
COMMANDS = sorted({line.strip() for line in FOUND})
LESS = {
    "bench": "--rows 1 --n 2 --top-k 10",
    "decode": "--limit 1 --tokens 8 --length 2 --paths 2",
    "lab design": "--limit 2 --tokens 24 --length 4 --nodes 4",
    "lab tune": "--limit 3 --tokens 16 --check 1 --paths 1 --length 2 --no-compile",
    "cascade": "--limit 1",
    "sweep": "--rows 4",
    "compare": "--rows 4 --top-k 50",
    "capture": "--limit 1 --tokens 4",
}
"""What makes a command of minutes one of seconds; the rest of its line stays as it is."""

SLOW = {name: [pytest.mark.slow] for name in LESS if name != "compare"}
SLOW["lab tune"] = [pytest.mark.slow, pytest.mark.long]


def name_of(line: str) -> str:
    """The command of a line, and that of the laboratory with its group."""
    words = line.split()
    return " ".join(words[1:3]) if words[1] == "lab" else words[1]


RULE = """
def rule(draft_tokens, p, q, rng):
    return rng.choice(p.size, p=p)
"""


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=SLOW.get(name_of(line), ())) for line in COMMANDS],
    ids=str,
)
def test_commands_work_as_printed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line)
    assert words[0] == "otlp"
    if name_of(line) in ("decode", "lab decode", "lab design", "lab tune", "cascade", "capture"):
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RULE)
    done(*words[1:], *LESS.get(name_of(line), "").split())
    for named in re.findall(r"\S+\.(?:json|mps|safetensors)\b", line):
        assert (tmp_path / named).stat().st_size > 0


@pytest.mark.slow
def test_the_table_of_what_is_gained_is_what_its_command_prints() -> None:
    (line,) = (line for line in COMMANDS if line.startswith("otlp compare --rows 162"))
    output = done(*shlex.split(line)[1:])
    for page in (README, (ROOT / "docs" / "index.md").read_text(encoding="utf-8")):
        for rule in ("naive", "recursive-rejection", "k-seq", "optimum"):
            (said,) = re.findall(rf"^\|[ *]*(?:the )?{rule.replace('-', '.')}\b.*$", page, re.M)
            row, *_ = re.findall(rf"^{rule} .*$", output, re.M)  # of the first table
            printed = [f"{float(value):.3f}" for value in re.findall(r"0\.\d{4}", row)]
            assert re.findall(r"0\.\d{3}", said) == printed, rule


def test_ci_runs_the_two_commands_that_come_first() -> None:
    """Verbatim: it takes the lines that begin so from the page."""
    assert "grep '^pip install .* && ' README.md" in (ROOT / ".ci" / "run").read_text()
    wanted = ["pip install -e . && otlp bench", 'pip install -e ".[test]" && pytest']
    assert re.findall(r"^pip install .* && .*$", README, re.M) == wanted
