"""Rows a second of `otlp.solve_many`, against a Python loop over `otlp.solve`.

    python bench/solve_many.py
    python bench/solve_many.py --sizes 4096 --drafts 4 --jobs 1,2,4 --rounds 10

Problems are built from the logits of a capture in memory, which is in the time of both.  Loop and
sweeps take turns, and each is judged by its best round, so that other programs disturb less.
Processes are started, and code is compiled, before.  All data are synthetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import click

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import console, progress, table, write_json
from otlp.data.synthetic import generate

CAPTURED = 2**18
"""Tokens of the capture, whose rows are taken again and again."""


@dataclass(frozen=True)
class Speed:
    """Rows a second; `ratio` is to the loop."""

    vocab_size: int
    n: int
    way: str
    rows: int
    rows_per_second: float
    ratio: float


def seconds_of(action: Callable[[], object]) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


def loop(problems: otlp.CaptureProblems) -> None:
    for problem in problems:
        otlp.solve(problem)


def sweep(problems: otlp.CaptureProblems, jobs: int, plans: bool) -> None:
    for row in otlp.solve_many(problems, jobs=jobs, plans=plans):
        assert row.error is None


def measure(
    vocab_size: int, n: int, jobs: tuple[int, ...], seconds: float, rounds: int, step: Callable
) -> list[Speed]:
    capture = generate(max(2, CAPTURED // vocab_size), vocab_size)
    once = otlp.CaptureProblems(capture, n=n)
    loop(once)
    times = max(1, round(seconds / seconds_of(lambda: loop(once))))
    problems = otlp.CaptureProblems(capture, list(range(len(capture))) * times, n=n)
    ways: dict[str, Callable[[], None]] = {"loop over solve": lambda: loop(problems)}
    for count in jobs:
        for plans in (True, False):
            name = f"jobs={count}" + ("" if plans else ", plans=False")
            ways[name] = lambda count=count, plans=plans: sweep(problems, count, plans)
    best = {name: float("inf") for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            taken = seconds_of(way)
            if number:  # the first round starts processes and compiles
                best[name] = min(best[name], taken)
            step(f"V = {vocab_size:,}, {name}")
    alone = best["loop over solve"]
    rows = len(problems)
    return [Speed(vocab_size, n, name, rows, rows / t, alone / t) for name, t in best.items()]


def show(speeds: list[Speed]) -> None:
    made = table("way", "V", "n", "rows", "rows/s", "ratio", title="solve_many on synthetic rows")
    for number, speed in enumerate(speeds):
        if number and speed.way == speeds[0].way:
            made.add_section()
        made.add_row(
            speed.way,
            f"{speed.vocab_size:,}",
            str(speed.n),
            f"{speed.rows:,}",
            f"{speed.rows_per_second:,.0f}",
            f"{speed.ratio:.2f}",
        )
    console.print(made)


@click.command(help=__doc__.replace("\n    ", "\n\n    "))
@click.option("--sizes", default="4096,128256", type=ListOf(click.IntRange(1000)))
@click.option("--drafts", default=4, type=click.IntRange(1), help="Number of drafts n.")
@click.option("--jobs", default="1,2", type=ListOf(click.IntRange(1)), help="Numbers of workers.")
@click.option("--seconds", default=2.0, help="Time of the loop in a round.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="The best one counts.")
@json_option("Also write all numbers.")
def main(
    sizes: tuple[int, ...],
    drafts: int,
    jobs: tuple[int, ...],
    seconds: float,
    rounds: int,
    json_path: Path | None,
) -> None:
    speeds = []
    with progress("solve_many", len(sizes) * (1 + 2 * len(jobs)) * (rounds + 1)) as step:
        for vocab_size in sizes:
            speeds += measure(vocab_size, drafts, jobs, seconds, rounds, step)
    if json_path:
        write_json(json_path, [asdict(speed) for speed in speeds])
    show(speeds)


if __name__ == "__main__":
    main()
