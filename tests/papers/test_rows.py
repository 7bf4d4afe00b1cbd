"""The page of the papers has a row for every statement, and every row can be run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproductions" / "papers.md"

STATEMENTS = {
    "SpecTr": "Claim 1; Lemmas 1 to 4; Theorems 1 and 2; Algorithms 1 to 4; Tables 1 to 4; "
    "Figures 4 to 6",
    "SpecHub": "Theorems 1 to 4; Corollary 1; Algorithms 1 to 3; Tables 1 to 7; "
    "Figures 1, 4, 5, 6 and 7; Appendix F",
    "Global resolution": "Theorems 3.1, 4.1, 5.1, 6.1, 6.2, 6.4, 6.5, B.1, C.1 and R.1; "
    "Lemmas 6.3, 6.6, F.1, G.1, I.1 and J.1; Algorithm 1; Appendices D, E, K and S; "
    "Tables 1 to 5; Figures 1 to 5",
    "Greedy multi-path block verification": "Theorems 3.3, 3.4, 4.3 and 4.6; "
    "Lemmas 4.4, 4.5, 4.7, A.1, A.2, A.3 and A.5; Algorithm 1; Appendix H; Tables 1 to 7",
    "Speculative cascades": "Lemmas 1 to 8; Algorithms 1 to 6; Remark 1; Tables 1 to 3; "
    "Figures 1 to 11; Appendix C.3",
}
"""Numbered statements of each paper that can be checked, without illustrations."""

KINDS = {"Lemmas": "Lemma", "Corollary": "Corollary", "Appendices": "Appendix"}


def numbered(text):
    """Split statements by kind and number: "Lemmas 1 to 3 and A.1" are four statements."""
    found = set()
    kind = r"(Claim|Lemma|Theorem|Corollary|Algorithm|Table|Figure|Appendix|Appendice|Remark)s?"
    number = r"(?:[A-Z]\.)?\d+(?:\.\d+)?|[A-Z](?:\.\d+)?(?![a-z])"
    for name, listed in re.findall(
        rf"\b{kind} ((?:{number})(?:(?:, | and | to )(?:{number}))*)", text
    ):
        name = name.replace("Appendice", "Appendix")
        for part in re.split(r", | and ", listed):
            first, *last = part.split(" to ")
            if last:
                found |= {f"{name} {k}" for k in range(int(first), int(last[0]) + 1)}
            else:
                found.add(f"{name} {first}")
    return found


def rows():
    """Return section, statement, location, command and outcome of each row."""
    section = ""
    for line in PAGE.read_text(encoding="utf-8").split("\n"):
        if line.startswith("### "):
            section = line[4:]
        elif section and line.startswith("| ") and not line.startswith("| statement"):
            yield section, *(cell.strip() for cell in line.strip("| ").split(" | "))


ROWS = list(rows())


@pytest.mark.parametrize("paper", STATEMENTS)
def test_every_statement_has_a_row(paper):
    listed = set().union(*(numbered(row[1]) for row in ROWS if row[0] == paper))
    assert numbered(STATEMENTS[paper]) <= listed, numbered(STATEMENTS[paper]) - listed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]:.40}")
def test_a_row_says_where_how_and_with_which_outcome(row):
    assert len(row) == 5
    assert all(row)
    command, outcome = row[3:]
    assert re.match(r"agrees|differs: .{10}|not available", outcome), outcome
    assert command == "none" or command.startswith("`")
    for path in re.findall(r"(?:tests|bench)/[\w/]+\.py", command):
        assert (ROOT / path).exists(), path
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", command):
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def quick():
    """Return the distinct commands without a stated time."""
    found = [re.fullmatch("`([^`]+)`", row[3]) for row in ROWS]
    return list(dict.fromkeys(match.group(1) for match in found if match))


@pytest.mark.slow
@pytest.mark.long  # CI runs each test in its own file
def test_the_tests_that_rows_name_pass():
    """All tests in one process, so that nothing is loaded twice."""
    named = [shlex.split(command)[1:] for command in quick() if command.startswith("pytest ")]
    whole = sorted(
        {argument for arguments in named if "-k" not in arguments for argument in arguments}
    )
    chosen = [arguments for arguments in named if "-k" in arguments]
    for arguments in [whole, *chosen]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("command", [one for one in quick() if not one.startswith("pytest ")])
def test_the_commands_that_rows_name_run(command):
    program, *arguments = shlex.split(command)
    assert program in ("otlp", "python")
    start = ["-m", "otlp"] if program == "otlp" else []
    done = subprocess.run(
        [sys.executable, *start, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
