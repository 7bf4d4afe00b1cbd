"""Printed output: complete in 80 columns, plain and unwrapped in a pipe; bars on stderr."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from otlp.cli import output
from otlp.cli.output import console, show, table
from tests.otlp.cli.command import refused, run

WORDS = {
    "solve": "solve --row 3 --n 3",
    "check": "check --rows 2 --top-k 4 --n 3",
    "bench": "bench --rows 1 --top-k 4 --n 2 "
    "--solvers martingale,orderings,k-seq,naive,recursive-rejection,max-flow,slackness,hub",
    "compare": "compare --rows 1 --n 1,2,3,4,5,6 --schemes iid,hub --rules naive,k-seq,hub",
    "sweep": "sweep --rows 2 --n 1,2,3,4,5,6,7,8 --rules naive,hub",
    "audit": "audit naive --n 2 --vocab-size 3",
    "info": "info",
}
"""Commands with wide tables or long sentences."""

TIMES = re.compile(r"[\d.,e+-]*\d")


def printed(words: str, monkeypatch: pytest.MonkeyPatch, columns: int | None = None) -> str:
    """Return the output on a terminal of the given width, or in a pipe."""
    if columns is not None:
        monkeypatch.setattr(console, "_force_terminal", True)
        monkeypatch.setattr(console, "_color_system", None)
        monkeypatch.setattr(console, "_width", columns)
    found = run(*words.split()).output
    monkeypatch.undo()
    return found


def words_of(output: str) -> set[str]:
    """Return the words of an output without times and numbers, which vary."""
    return {TIMES.sub("#", word) for word in output.split()}


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("name", WORDS)
def test_80_columns_lose_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = printed(WORDS[name], monkeypatch, columns=80)
    whole = printed(WORDS[name], monkeypatch)
    assert max(map(cell_len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert words_of(narrow) == words_of(whole)


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("name", WORDS)
def test_a_pipe_gets_plain_lines_as_long_as_they_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    plain = printed(WORDS[name], monkeypatch)
    assert "\x1b" not in plain
    if name != "solve":
        assert max(map(len, plain.splitlines())) > 60


def through_a_terminal(*words: str) -> tuple[str, str]:
    """Run a command with stdout as a pipe and stderr as a terminal; return both outputs."""
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "otlp", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(reader, 4096)
        except OSError:  # the other end of the terminal is closed
            break
        if not piece:
            break
        shown += piece
    output = process.stdout.read().decode()
    process.stdout.close()
    process.wait()
    os.close(reader)
    return output, shown.decode(errors="replace")


def test_bars_are_shown_where_the_output_is_a_pipe() -> None:
    output, shown = through_a_terminal("check", "--rows", "1", "--solvers", "martingale,orderings")
    assert "warming up" in shown and "0:00:0" in shown
    assert "\x1b" not in output and output.endswith("equal acceptance: martingale, orderings.\n")


def test_bench_shows_the_table_so_far() -> None:
    sizes = "--top-k", "10", "--n", "2,3", "--rows", "3"
    output, shown = through_a_terminal("bench", *sizes, "--solvers", "martingale,k-seq")
    assert "warming up" in shown and re.search(r"\(10, 2\) +\d\S+ +\d", shown)
    assert "\x1b" not in output and "(10, 3)" in output


@pytest.mark.parametrize(
    "words",
    [
        "bench --figure c.xyz",
        "compare --figure c.xyz",
        "sweep --figure c.xyz",
        "solve -o name=x",
        "solve -o name",
        "check --solvers martingal",
        "compare --rules nobody",
        "compare --schemes nobody",
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("otlp.data.captures.load", lambda path: pytest.fail("work had begun"))
    command, *rest = words.split()
    refused(command, "mine.safetensors", *rest)


def test_a_table_in_a_pipe_has_its_title_and_is_cut_nowhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = table("name", *(f"heading {number}" for number in range(40)), title="of " * 60 + "all")
    made.add_row("row", *(f"{number}.123456789" for number in range(40)))
    show(made)
    title, heads, row = capsys.readouterr().out.splitlines()
    assert title.endswith(" of all")
    assert heads.split("  ")[-1].strip() == "heading 39" and row.endswith(" 39.123456789")


def test_long_work_says_what_it_is_at_where_no_bar_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "PROGRESS_INTERVAL", 0.0)
    with output.progress("costs", 2) as step:
        step("1x2, first run")
        step()
    message = capsys.readouterr().err.splitlines()
    assert message == [
        "otlp: costs: 1x2, first run (0 s so far)",
        "otlp: costs: running (0 s so far)",
    ]
