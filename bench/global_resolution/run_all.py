"""Reproduce all tables and figures of the paper.

    python bench/global_resolution/run_all.py

Takes some minutes; each part can also be run separately, and has its own --help.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from otlp.cli.options import jobs_option

PARTS = {
    "acceptance.py": "Figures 1 to 4",
    "times.py": "Tables 1 and 3",
    "flow_engines.py": "their maximum flows, engine by engine",
    "success.py": "their success rates",
    "limits.py": "Table 2",
    "multi_step.py": "Table 4",
    "temperature.py": "Figure 5",
    "acceptance_against_time.py": "all solvers in one figure",
}


@click.command(help=__doc__, context_settings={"show_default": True})
@jobs_option
def main(jobs: int | None) -> None:
    parallel = [] if jobs is None else ["--jobs", str(jobs)]
    start = time.perf_counter()
    for part, what in PARTS.items():
        click.secho(f"\n== {what}: {part}", bold=True)
        script = Path(__file__).with_name(part)
        options = parallel if part == "acceptance.py" else []  # the others measure times
        subprocess.run([sys.executable, script, *options], check=True)
    click.echo(f"\n{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
