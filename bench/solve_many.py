"""Rows per second of `otlp.solve_many` and of a Python loop over `otlp.solve`.

    python bench/solve_many.py
    python bench/solve_many.py --sizes 4096 --drafts 4 --jobs 1,2,4 --rounds 10

Problems are built from the logits of a capture in memory or in a file; all times include this.
Loop and sweeps take turns, and the best round counts, to reduce disturbances by other programs.
Processes are started and code is compiled before.  All data are synthetic.

A ratio is to the loop that keeps the same: each plan until the next is found, or no plan
(`plans=False`).  Independent loops share only the rows: their gain is an upper bound for sweeps on
this machine under its current load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from measuring import in_turns, report, seconds_of

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress
from otlp.data.capture_file import read_capture_file
from otlp.data.synthetic import generate

DROPPED = ", plans=False"

CAPTURED = 2**18
"""Number of logits of the capture, whose rows are repeated."""

PLACES = ("memory", "files")


def loop(problems: otlp.CaptureProblems) -> None:
    """Keep each plan until the next is found, like a sweep with plans."""
    for problem in problems:
        solution = otlp.solve(problem)
    del solution


def loop_without_plans(problems: otlp.CaptureProblems) -> None:
    for problem in problems:
        otlp.solve(problem)


def sweep(problems: otlp.CaptureProblems, jobs: int, plans: bool) -> None:
    for row in otlp.solve_many(problems, jobs=jobs, plans=plans):
        assert row.error is None


def captured(vocab_size: int, folder: Path | None) -> otlp.captures.Capture:
    """Return a capture in memory, or in a file in `folder`, which is written if missing."""
    if folder is None:
        return generate(max(2, CAPTURED // vocab_size), vocab_size)
    path = folder / f"{vocab_size}.safetensors"
    if not path.exists():
        otlp.captures.save(captured(vocab_size, None), path)
    return read_capture_file(str(path), most=0)  # the rows stay in the file


def listen(calls: Connection, vocab_size: int, n: int, folder: Path | None) -> None:
    """Solve the requested number of rows in an independent process, for each request."""
    problems = otlp.CaptureProblems(captured(vocab_size, folder), n=n)
    loop(problems)
    calls.send(True)
    while rows := calls.recv():
        for row in range(rows):
            otlp.solve(problems[row % len(problems)])
        calls.send(True)


@contextmanager
def independent_loops(
    count: int, vocab_size: int, n: int, folder: Path | None
) -> Iterator[Callable[[int], None]]:
    """Start processes; yield a function that solves a total number of rows in them."""
    spawn = get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(count)]
    for _, end in pipes:
        spawn.Process(target=listen, args=(end, vocab_size, n, folder), daemon=True).start()
    for calls, _ in pipes:
        calls.recv()

    def solve(rows: int) -> None:
        for number, (calls, _) in enumerate(pipes):
            calls.send((rows + number) // count)
        for calls, _ in pipes:
            calls.recv()

    yield solve
    for calls, _ in pipes:
        calls.send(0)


def measure(
    place: str,
    vocab_size: int,
    n: int,
    jobs: tuple[int, ...],
    seconds: float,
    rounds: int,
    step: Callable[[str], None],
    folder: Path,
) -> list[dict[str, Any]]:
    """Measure the rows per second of all ways; `ratio` is to the loop that keeps the same."""
    files = folder if place == "files" else None
    capture = captured(vocab_size, files)
    once = otlp.CaptureProblems(capture, n=n)
    loop(once)
    times = max(1, round(seconds / seconds_of(lambda: loop(once))))
    problems = otlp.CaptureProblems(capture, list(range(len(capture))) * times, n=n)
    ways: dict[str, Callable[[], None]] = {
        "loop over solve": lambda: loop(problems),
        f"loop{DROPPED}": lambda: loop_without_plans(problems),
    }
    with ExitStack() as loops:
        for count in jobs:
            if count > 1:
                run = loops.enter_context(independent_loops(count, vocab_size, n, files))
                ways[f"{count} independent loops"] = partial(run, len(problems))
            for plans in (True, False):
                name = f"jobs={count}" + ("" if plans else DROPPED)
                ways[name] = partial(sweep, problems, count, plans)
        # The first round starts processes and compiles code.
        best = {way: float(taken.min()) for way, taken in in_turns(ways, rounds, step=step).items()}
    own = {True: best[f"loop{DROPPED}"], False: best["loop over solve"]}
    return [
        {"way": name, "V": vocab_size, "rows in": place, "rows": len(problems),
         "rows/s": len(problems) / t, "ratio": own[name.endswith(DROPPED)] / t}
        for name, t in best.items()
    ]  # fmt: skip


@click.command(help=__doc__.replace("\n    ", "\n\n    "))
@click.option("--sizes", default="4096,128256", type=ListOf(click.IntRange(1000)))
@click.option("--drafts", default=4, type=click.IntRange(1), help="Number of drafts n.")
@click.option("--jobs", default="1,2", type=ListOf(click.IntRange(1)), help="Numbers of workers.")
@click.option("--seconds", default=2.0, help="Seconds of the loop per round.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="Rounds; the best one counts.")
@json_option("Also write all numbers to this file.")
def main(
    sizes: tuple[int, ...],
    drafts: int,
    jobs: tuple[int, ...],
    seconds: float,
    rounds: int,
    json_path: Path | None,
) -> None:
    rows = []
    ways = 2 + 2 * len(jobs) + sum(count > 1 for count in jobs)
    steps = len(sizes) * len(PLACES) * ways * (rounds + 1)
    with TemporaryDirectory() as folder, progress("solve_many", steps) as step:
        for size, place in product(sizes, PLACES):
            rows += measure(place, size, drafts, jobs, seconds, rounds, step, Path(folder))
    report(f"solve_many on synthetic rows, n = {drafts}", rows, json_path)


if __name__ == "__main__":
    main()
