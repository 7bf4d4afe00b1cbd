"""Instruction counts of all kernels, compared to an earlier commit.

    python bench/instructions.py                        # bench/results/instructions.json
    python bench/instructions.py --json before.json     # at one commit, and at another:
    python bench/instructions.py --before before.json

Valgrind's callgrind counts instructions, so other programs and the clock rate have no effect, and
every x86-64 processor with AVX2 looks the same to the process.  The exit status is 1 if a kernel
takes more than `--limit` times the earlier number of instructions.

Not measured: waiting times (memory, caches, branch mispredictions, locks), the distribution over
threads, registers wider than AVX2's, and compilation.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from kernels import CALLS, KERNELS

from otlp.cli.options import ListOf, json_option
from otlp.cli.output import fail, note, show, table, write_json

BASELINE = Path(__file__).parent / "results" / "instructions.json"

ENVIRONMENT = {
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+fma,+lzcnt,+popcnt,+sse4.1,+sse4.2",
    "NUMBA_CPU_NAME": "haswell",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
"""Environment for the same machine code and the same order of sets on all machines."""


def count(names: Sequence[str]) -> dict[str, int]:
    """Return the instructions per call of each kernel."""
    valgrind = shutil.which("valgrind") or fail("valgrind is missing: apt install valgrind")
    with TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        environment = os.environ | ENVIRONMENT | {"NUMBA_CACHE_DIR": f"{folder}/numba"}
        program = [sys.executable, str(Path(__file__).with_name("kernels.py")), *names]
        counter = [
            valgrind, "--quiet", "--tool=callgrind", "--dump-before=getppid",
            "--combine-dumps=yes", f"--callgrind-out-file={out}",
        ]  # fmt: skip
        # The first run compiles without the counter, at full speed.
        for command in (program, counter + program):
            subprocess.run(command, env=environment, check=True)
        parts = re.findall(r"^totals: (\d+)$", out.read_text(), re.M)
    # Parts before, within and between the marks, and after the last mark.
    if len(parts) != 2 * len(names) + 1:
        fail(f"expected {2 * len(names)} marks, found {len(parts) - 1}")
    return {name: int(part) // CALLS for name, part in zip(names, parts[1::2], strict=True)}


def versions() -> dict[str, str]:
    """Return the versions of packages that affect the counts."""
    packages = {name: version(name) for name in ("llvmlite", "numba", "numpy", "scipy")}
    return {"libc": "-".join(platform.libc_ver()), "python": platform.python_version(), **packages}


def slower(before: dict[str, int], now: dict[str, int], limit: float) -> list[str]:
    """Return the kernels that take more than `limit` times their earlier instructions."""
    return [name for name in now if name in before and now[name] > limit * before[name]]


def compare(before: dict[str, Any], now: dict[str, Any], limit: float) -> list[str]:
    """Print both counts, and return the names of slower kernels."""
    then, today = before["instructions"], now["instructions"]
    made = table("millions of instructions", "before", "now", "ratio")
    worse = slower(then, today, limit)
    for name, found in today.items():
        known = then.get(name)
        old, ratio = (f"{known / 1e6:.3f}", f"{found / known:.3f}") if known else ("-", "-")
        mark = f"{ratio} slower" if name in worse else ratio
        made.add_row(name, old, f"{found / 1e6:.3f}", mark)
    show(made)
    for name, known in before["versions"].items():
        if known != now["versions"][name]:
            note(f"{name} was {known} and is {now['versions'][name]}: this may affect the counts.")
    return worse


@click.command(help=__doc__.replace("\n    ", "\n\n    "), context_settings={"show_default": True})
@click.option(
    "--kernels",
    "names",
    default=",".join(KERNELS),
    type=ListOf(click.Choice(list(KERNELS))),
    help="Names of kernels.",
)
@click.option(
    "--before",
    "before_path",
    default=BASELINE,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with earlier counts.",
)
@click.option("--limit", default=1.2, type=click.FloatRange(1), help="Maximum allowed ratio.")
@json_option("Also write the counts to this file.")
def main(names: tuple[str, ...], before_path: Path, limit: float, json_path: Path | None) -> None:
    now = {"versions": versions(), "instructions": count(names)}
    if json_path:
        write_json(json_path, now)
    before = json.loads(before_path.read_text())
    raise SystemExit(bool(compare(before, now, limit)))


if __name__ == "__main__":
    main()
