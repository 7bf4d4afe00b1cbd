"""``otlp compare``: every published rule under every draft scheme, on rows of a capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.acceptances import note_missing, note_partial, print_points
from otlp.cli.options import workers
from otlp.cli.output import console, progress, write_result, write_whole
from otlp.cli.rows import ChosenRows
from otlp.drafts.by_name import SCHEMES
from otlp.studies.compare import BOUND, OPTIMUM, RULES
from otlp.studies.figures import draw_sweep
from otlp.studies.points import SweepPoint
from otlp.studies.sweep import Grid, sweep
from otlp.sweeps.rows import CaptureRows


@click.command(
    epilog="""\b
Examples:
  otlp compare                                  all schemes and published rules, ten rows
  otlp compare --n 2,4,8 --schemes iid --rules naive,k-seq,auto --rows 50
  otlp compare mine.safetensors --temperature 0.6 --json accepted.json --figure accepted.png
  otlp compare --rows 160 --jobs 4                       four processes, the same numbers
  otlp compare --schemes greedy,hub,independent --n 2 --rules greedy,hub,max-flow --top-k 20
"""
)
@options.capture_argument
@options.n_option("1,2,3,4")
@options.rows_option(10)
@options.row_options()
@options.schemes_option(",".join(SCHEMES))
@options.rules_option(",".join(RULES))
@options.time_limit_option(10.0)
@options.workers_options
@options.json_option("Write the acceptance on every row to a file.")
@options.figure_option("Draw the acceptance over n.")
def command(
    capture: str | None,
    n: tuple[int, ...],
    rows: int,
    schemes: tuple[str, ...],
    rules: tuple[str, ...],
    time_limit: float,
    jobs: int | None,
    scheduler: str | None,
    json_path: Path | None,
    figure_path: Path | None,
    **cut: Any,
) -> None:
    """Compare the acceptance of verification rules under every draft scheme.

    A line a rule, a column an n: the mean over rows of the probability that the verified token is
    one of the drafted ones, and its share of the optimum, which is that of the best rule for the
    scheme.  The information bound is the sum of min(p, probability of being drafted).
    "independent" drafts come from the draft at temperatures 1, 0.71, 1.41, 0.5, 2, ...

    A row of 4,096 tokens takes about half a second.  All of it is exact, but for recursive
    rejection without replacement, whose acceptance is estimated where a million sequences of
    rejected tokens are not enough: for n = 3 and 1,000 tokens.
    """
    chosen = ChosenRows.spread(capture, rows)
    chosen.capture.check_top_k(cut["top_k"])
    same = {name: cut[name] for name in ("draft_temperature", "top_p")}
    grid = Grid(
        *(n, (cut["temperature"],), (cut["top_k"],), schemes, rules), **same, time_limit=time_limit
    )
    source = CaptureRows(chosen.capture, chosen.numbers)
    total = len(chosen.numbers) * len(grid.settings)
    results: list[dict[str, Any]] = []
    with workers(jobs, scheduler) as where, progress("comparing", total) as step:
        points = sweep(
            source, grid, progress=step, each=lambda entry: results.extend(_flat(entry)), **where
        )
    content = {**chosen.chosen, **cut, "time_limit_seconds": time_limit, "results": results}
    write_result(json_path, "compare", content)
    if figure_path:
        write_whole(figure_path, lambda path: draw_sweep(path, points, "n", chosen.title))
    console.print(f"Mean acceptance: {chosen.title}")
    print_points(points, "n", _cell)
    console.print()
    chosen.say_truncations(chosen.truncations(**cut))
    note_missing(points)
    note_partial(points)


def _flat(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was found on a row, for `write_result`: a record for each rule."""
    where = {name: entry[name] for name in ("row", "scheme", "n")}
    for rule, found in entry["rules"].items():
        yield {**where, "rule": rule, "guarantee": "", "reason": "", **found}


def _cell(found: SweepPoint, best: SweepPoint) -> str:
    mean = found.acceptance.mean
    if found.partial:
        return f"{mean:.4f}*"
    if found.rule in (OPTIMUM, BOUND) or best.partial:
        return f"{mean:.4f}"
    share = mean / best.acceptance.mean
    return f"{mean:.4f} " + ("100%" if share > 0.9995 else f"{share:.1%}")
