"""Remake every table and figure of the paper, one after the other.

    python bench/global_resolution/run_all.py

Some minutes; each part can also be run by itself, and has its own --help.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

PARTS = {
    "acceptance.py": "Figure 1",
    "times.py": "Tables 1 and 3",
    "limits.py": "Table 2",
    "greedy.py": "Figures 2 and 3",
    "temperature.py": "Figures 4 and 5",
    "acceptance_against_time.py": "all solvers in one figure",
}


@click.command(help=__doc__, context_settings={"show_default": True})
def main() -> None:
    start = time.perf_counter()
    for part, what in PARTS.items():
        click.secho(f"\n== {what}: {part}", bold=True)
        subprocess.run([sys.executable, Path(__file__).with_name(part)], check=True)
    click.echo(f"\n{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
