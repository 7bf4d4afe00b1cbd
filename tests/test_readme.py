"""README and quickstart: every command works as printed; slow commands run on less data."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.otlp.cli.command import done

ROOT = Path(__file__).parent.parent
README, INDEX = (
    (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/index.md")
)
FOUND = re.findall(r"(?:^|`|&& )(otlp [a-z-]+(?: [^`#\n]+)?)(?=[`\s#]|$)", README + INDEX, re.M)
BLOCKS = [
    block for page in (README, INDEX) for block in re.findall(r"```python\n(.*?)```", page, re.S)
]
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
    "report": "--rows 4 --jobs 1",
}
"""Replacements that shorten commands from minutes to seconds; the rest of a line is unchanged."""

SLOW = {name: [pytest.mark.slow] for name in LESS if name != "compare"}
SLOW["lab tune"] = [pytest.mark.slow, pytest.mark.long]


def name_of(line: str) -> str:
    """Return the command of a line; laboratory commands include the group."""
    words = line.split()
    return " ".join(words[1:3]) if words[1] == "lab" else words[1]


def marks(line: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a line; of two comparisons with a figure, one is fast."""
    return SLOW.get(name_of(line), [pytest.mark.slow] * ("accepted.pdf" in line))


(RULE,) = (block for block in BLOCKS if block.startswith("# mine.py"))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block != RULE])
def test_what_is_pasted_prints_what_is_said(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks have no prompts; each output line is a comment of the block."""
    assert ">>>" not in block and "\n\n\n" not in block
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "pasted", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) >= 4 and all(f"# {line}\n" in block for line in printed)
    assert (tmp_path / "mine.npz").exists()


@pytest.mark.usefixtures("few_repetitions")
def test_the_rule_of_the_quickstart_is_judged_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RULE)
    for words, verdict in re.findall(r"^otlp audit mine.py:rule (.*?) +# (\w+):", INDEX, re.M):
        rule = f"{tmp_path / 'mine.py'}:rule"
        message = done("audit", rule, *words.split(), status=int(verdict != "LOSSLESS"))
        assert message.startswith(f"{verdict}:")


@pytest.mark.usefixtures("rough_means", "few_repetitions")
@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=marks(line)) for line in COMMANDS],
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
    np.savez(tmp_path / "mine.npz", p=[0.1, 0.6, 0.3], q=[0.5, 0.3, 0.2])
    status = int("without-replacement" in line)  # the rule is for other drafts
    less = LESS.get(name_of(line), "")
    if "mine.npz" in line and name_of(line) != "report":
        less = "--time-limit 5"
    done(*words[1:], *less.split() if "solve" not in line else [], status=status)
    for named in re.findall(r"\S+\.(?:html|json|mps|pdf|safetensors)\b", line):
        assert (tmp_path / named).stat().st_size > 0


@pytest.mark.slow
def test_the_table_of_what_is_gained_is_what_its_command_prints() -> None:
    (line,) = (line for line in COMMANDS if line.startswith("otlp compare --rows 162"))
    output = done(*shlex.split(line)[1:])
    for rule in ("naive", "recursive-rejection", "k-seq", "optimum"):
        (message,) = re.findall(
            rf"^\|[ *]*(?:the )?{rule.replace('-', '.')}\b.*\d.*$", README, re.M
        )
        row, *_ = re.findall(rf"^{rule} .*$", output, re.M)  # of the first table
        printed = [f"{float(value):.3f}" for value in re.findall(r"0\.\d{4}", row)]
        assert re.findall(r"0\.\d{3}", message) == printed, rule


def test_ci_runs_the_two_commands_that_come_first() -> None:
    """CI reads the lines with this prefix from the page."""
    assert "grep '^pip install .* && ' README.md" in (ROOT / ".ci" / "run").read_text()
    wanted = [
        "pip install -e . && otlp bench",
        'pip install --no-compile -e ".[test]" && pytest',
    ]
    assert re.findall(r"^pip install .* && .*$", README, re.M) == wanted
