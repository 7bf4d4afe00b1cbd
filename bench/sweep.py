"""A long sweep that is killed, interrupted and resumed: rows, seconds and peak memory.

    python bench/sweep.py                        # 100,000 synthetic rows at V = 4,096, two workers

The command is killed (SIGKILL) at a third, interrupted (Ctrl-C) at two thirds, and goes on each
time.  The peak is that of the resident memory of the command and its workers together, pages that
they share counted for each of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import psutil

BETWEEN_LOOKS = 0.5
"""Seconds."""


def memory(process: psutil.Process) -> int:
    """Resident bytes of a process and all that it started."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            pass
    return total


def run(words: list[str], journal: Path, end: int, by: signal.Signals) -> tuple[float, int]:
    """Start the command, and end it once the journal has so many bytes; seconds and peak."""
    start, peak = time.perf_counter(), 0
    process = psutil.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        peak = max(peak, memory(process))
        if journal.exists() and journal.stat().st_size > end:
            os.killpg(process.pid, by)
            break
        time.sleep(BETWEEN_LOOKS)
    process.wait()
    return time.perf_counter() - start, peak


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--rows", default=100_000)
@click.option("--vocab-size", default=4096)
@click.option("--n", default=4)
@click.option("--rules", default="martingale")
@click.option("--jobs", default=2)
def main(rows: int, vocab_size: int, n: int, rules: str, jobs: int) -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells let nohup's children ignore it
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "sweep.jsonl"
        command = f"sweep --synthetic {rows} --vocab-size {vocab_size} --n {n} --rules {rules}"
        words = [sys.executable, "-c", "from otlp.cli import main; main()", *command.split()]
        words += ["--jobs", str(jobs), "--journal", str(journal)]
        line = 260  # bytes, about
        ends = [
            (rows // 3, signal.SIGKILL),
            (2 * rows // 3, signal.SIGINT),
            (2 * rows, signal.SIGINT),
        ]
        for end, by in ends:
            seconds, peak = run(words, journal, end * line, by)
            whole = journal.read_bytes().count(b"\n") - 1
            click.echo(f"{seconds:7.0f} s, {whole:,} lines, peak {peak / 2**20:,.0f} MiB")
        with journal.open() as file:
            next(file)
            found = [json.loads(text)["row"] for text in file]
        assert found == list(range(rows)), "a row is lost, or done twice"
        click.echo(f"every one of {rows:,} rows once")


if __name__ == "__main__":
    main()
