"""Draw random problems, hold the library against the oracle, and print what does not agree.

Examples
--------
    python -m tests.fuzz --seconds 10                 as in every CI run
    python -m tests.fuzz --instances 100000 --seed 1  as in docs/reliability.md
    python -m tests.fuzz --seed 1 --only 4711         one instance again
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field

import click
import numpy as np

from tests.fuzz.checks import check
from tests.fuzz.drawing import EVERY, draw
from tests.fuzz.instance import Instance, torch
from tests.fuzz.shrinking import shrink
from tests.fuzz.wrong import Wrong

BATCHED_SHARE = 0.01


@dataclass
class Tally:
    """What was tried."""

    tried: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, instance: Instance, outcome: str) -> None:
        self.tried += 1
        for title, word in (
            ("scheme", instance.scheme),
            ("solver", instance.solver),
            ("family", instance.family),
            ("numbers as", instance.form),
            ("outcome", outcome),
        ):
            self.counts.setdefault(title, Counter())[word] += 1

    def table(self) -> str:
        """Markdown, for docs/reliability.md."""
        lines = ["| | |", "|---|---|"]
        for title, counter in self.counts.items():
            listed = ", ".join(f"{word} {count:,}" for word, count in counter.most_common())
            lines.append(f"| {title} | {listed} |")
        return "\n".join(lines)


def generator(seed: int, number: int) -> np.random.Generator:
    """The generator of one instance, whatever came before it."""
    return np.random.default_rng([seed, number])


@click.command(help=__doc__.split("\n\n")[0])
@click.option("--seconds", type=float, help="Stop after so long [default: 60].")
@click.option("--instances", type=click.IntRange(1), help="Stop after so many.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--only", type=click.IntRange(0), help="Try this instance alone.")
@click.option("--skip", multiple=True, help="A scheme, solver, family or form to leave out.")
def main(
    seconds: float | None, instances: int | None, seed: int, only: int | None, skip: tuple[str, ...]
) -> None:
    """See the module."""
    if seconds is None and instances is None:
        seconds = 60.0
    share = BATCHED_SHARE if torch is not None else 0.0
    warm_up()
    warnings.simplefilter("error")
    tally, began = Tally(), time.monotonic()
    first = 0 if only is None else only
    most = 1 if only is not None else instances
    number = first
    while most is None or number < first + most:
        if only is None and seconds is not None and time.monotonic() - began > seconds:
            break
        instance = draw(generator(seed, number), share)
        if not {instance.scheme, instance.solver, instance.family, instance.form} & set(skip):
            attempt(instance, number, seed, tally)
        number += 1
    took = time.monotonic() - began
    print(
        f"seed {seed}: {tally.tried:,} instances in {took:.0f} s ({tally.tried / took:.0f} a "
        f"second), {sum(tally.failures.values())} failed in {len(tally.failures)} ways; slowest "
        f"solve {tally.slowest[0]:.2f} s (instance {tally.slowest[1]})\n\n{tally.table()}"
    )
    for (solver, what), count in tally.failures.items():
        print(f"FAILED {count} times: {solver}: {what}")
    sys.exit(1 if tally.failures else 0)


def attempt(instance: Instance, number: int, seed: int, tally: Tally) -> None:
    """Try one instance; of a new kind of failure, print the smallest form."""
    try:
        outcome = check(instance)
    except Wrong as wrong:
        tally.add(instance, "failed")
        kind = instance.solver, wrong.check
        tally.failures[kind] = tally.failures.get(kind, 0) + 1
        if tally.failures[kind] == 1:
            small, found = shrink(instance, wrong)
            print(
                f"FAILED {instance.solver}: {wrong}\n"
                f"  again: python -m tests.fuzz --seed {seed} --only {number}\n"
                f"  smallest form ({found}):\n{small}\n",
                flush=True,
            )
        return
    tally.add(instance, outcome.word)
    tally.slowest = max(tally.slowest, (outcome.seconds, number))


def warm_up() -> None:
    """Compile and start what the solvers need, so that no instance is charged for it."""
    import otlp

    target = [0.2, 0.3, 0.5]
    for drafts in (
        otlp.IID(target[::-1], 3),
        otlp.Independent([target[::-1], target]),
        otlp.WithoutReplacement(target[::-1], 3),
        otlp.WithoutReplacement(target[::-1], 2),
        otlp.Greedy(target[::-1], 2),
        otlp.Hub(target[::-1]),
        otlp.Explicit([[0, 1], [1, 2]], [0.5, 0.5]),
    ):
        problem = otlp.Problem(target, drafts)
        for name in EVERY:
            solver = otlp.solvers.make_solver(name)
            if solver.supports(problem):
                solution = solver.solve(problem)
                if solution.plan is not None:
                    row = drafts.sample(np.random.default_rng(0))
                    solution.plan.conditional(row)
                    solution.plan.sample(row, np.random.default_rng(0))


if __name__ == "__main__":
    main()
