"""``otlp sweep``: measure rules over settings on many rows, with a journal to resume from."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.acceptances import measure_all, note_points, print_points, split_rules
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.output import console, note, progress, write_figure, write_result
from otlp.cli.result_table import write_table
from otlp.cli.rows import ChosenRows
from otlp.data.synthetic import LEAST_TOKENS
from otlp.errors import OTLPError
from otlp.parallel.rows import CaptureRows, RowSource, SyntheticRows
from otlp.studies.compare import BOUND, OPTIMUM
from otlp.studies.figures import draw_sweep
from otlp.studies.points import AXES, SweepPoint, varying
from otlp.studies.sweep import Grid, sweep


@options.grouped_command(
    epilog="""\b
Examples:
  otlp sweep --n 1,2,4,8 --figure over_n.svg             every row of the built-in capture
  otlp sweep --n 4 --temperature 0.4,0.6,0.8,1 --rules k-seq,naive --figure over_t.svg
  otlp sweep mine.safetensors --n 2,4 --top-k 10,100,1000,0 --over top-k --journal mine.jsonl
  otlp sweep --synthetic 100000 --n 4 --rules martingale --journal big.jsonl --jobs 8
"""
)
@capture_argument
@click.option("--synthetic", type=click.IntRange(1), help="Number of synthetic rows (no FILE).")
@options.vocab_size_option(4096, LEAST_TOKENS)
@options.seed_option()
@options.rows_option(None)
@options.n_option("1,2,3,4")
@options.temperature_option("1")
@options.top_k_option("0")
@options.draft_temperature_option()
@options.top_p_option()
@options.served_options
@options.schemes_option("iid")
@options.own_rules_option(",".join(Grid().rules))
@options.time_limit_option(10.0)
@options.jobs_option
@options.journal_option
@click.option(
    "--over",
    type=click.Choice([axis.replace("_", "-") for axis in AXES]),
    show_default="the first list with several values",
    help="Axis of table columns and of the figure.",
)
@options.json_option("Write means and intervals to a file.")
@options.figure_option("Plot each rule and its distance from the optimum.")
@options.table_option
def command(
    capture: CaptureFile,
    synthetic: int | None,
    vocab_size: int,
    seed: int,
    rows: int | None,
    n: tuple[int, ...],
    top_k: tuple[int | None, ...],
    jobs: int | None,
    journal: Path | None,
    over: str | None,
    json_path: Path | None,
    figure_path: Path | None,
    table_path: Path | None,
    rules: tuple[str, ...],
    time_limit: float,
    **same: Any,
) -> None:
    """Measure the acceptance of rules on many rows, over n, temperature and top-k.

    Every rule is measured on every row, at every combination of the lists.  The optimum and the
    information bound, the sum of min(p, probability of being drafted), are shown next to the rules.
    Means have 95% intervals, computed over the passages that contain the rows.

    With --journal, the same command resumes a sweep that was interrupted, was killed, or met a full
    disk: no row is lost or repeated.  With longer lists, such as a further n, only new settings are
    measured.  The journal is byte-identical for any number of processes.  Your own rules
    (FILE.py:FUNCTION) are audited and sampled as in `otlp compare`, and are not journaled.
    """
    solvers, own = split_rules(rules)
    grid = Grid(n, top_k=top_k, rules=solvers, time_limit=time_limit, **same)
    chosen: ChosenRows | None = None
    source: RowSource
    if synthetic is None:
        if found := options.given({"vocab_size", "seed"}):
            raise click.UsageError("; ".join(f"{flag} needs --synthetic" for flag in found))
        chosen = ChosenRows.spread(capture, rows)
        source = CaptureRows(chosen.capture, chosen.numbers)
        for k in grid.top_k:
            chosen.capture.check_top_k(k)
        chosen.capture.check_top_k(grid.sampling_top_k, "sampling_top_k")
    elif capture.path is not None or rows is not None:
        raise click.UsageError("--synthetic replaces the capture: leave out FILE and --rows")
    else:
        capture.refuse_pairs("--synthetic replaces the capture")
        source = SyntheticRows(synthetic, vocab_size, seed)
    if journal:
        journal.parent.mkdir(parents=True, exist_ok=True)
    total = len(source.numbers) * len(grid.settings)
    try:
        with progress("sweeping", total) as step:
            points = sweep(source, grid, journal, progress=step, jobs=jobs)
    except KeyboardInterrupt:
        if journal:
            console.print(f"Finished rows are in {journal}: run the same command to resume.")
        raise
    points += [one.point(rule, source) for rule, one in measure_all(own, source, grid)]
    axis = over.replace("-", "_") if over else varying(points)
    synthetic_source = {"capture": None, "target": None, "draft": None, "synthetic": True}
    size = chosen.capture.model_vocab_size if chosen else source.vocab_size
    best = {point.setting: point for point in points if point.rule == OPTIMUM}
    content = {
        **(chosen.source if chosen else synthetic_source),
        "seed": None if chosen else seed,
        "row_count": len(source.numbers),
        "row_choice": chosen and chosen.choice,
        "vocab_size": size,
        **grid.cuts,
        "time_limit_seconds": grid.time_limit,
        "points": [point.record(best[point.setting]) for point in points],
    }
    write_result(json_path, "sweep", content)
    title = f"{chosen.title if chosen else f'{synthetic:,} synthetic rows'}, V = {size:,}"
    if table_path:
        write_table(table_path, points, grid.cuts)
    write_figure(figure_path, draw_sweep, points, axis, title)
    console.print(f"Mean acceptance: {title}")
    print_points(points, axis, _cell)
    if len(grid.rules) > 0:
        console.print("\nDistance below the optimum, paired by passages")
        print_points(points, axis, _gap, (OPTIMUM, BOUND))
    note(
        "\n±: half of a 95% interval over passages, the independent units; with one passage, over "
        "samples."
    )
    if chosen is not None:
        chosen.print_truncation(_truncation_errors(chosen, grid))
    note_points(points, time_limit)


def _truncation_errors(rows: ChosenRows, grid: Grid) -> list[float]:
    """Return the largest truncation error of each row over the settings; empty for whole rows."""
    widest = None if None in grid.top_k else max(k for k in grid.top_k if k)
    cuts = {"top_k": widest, **grid.cuts}
    found = []
    for row in rows.numbers if rows.capture.kept else ():
        with suppress(OTLPError):  # An unusable row has its own reason in the results.
            found.append(max(rows.capture.truncation(row, t, **cuts) for t in grid.temperature))
    return found


def _gap(point: SweepPoint, best: SweepPoint) -> str:
    shown = point.below(best).show(4).replace(" ", "\n")
    return "-" if shown == "nan" else shown.replace("-0.0000", "0.0000")


def _cell(point: SweepPoint, _: SweepPoint) -> str:
    mean = f"{point.acceptance.mean:.4f}" + ("*" if point.partial else "")
    return mean if math.isnan(point.error) else f"{mean}\n±{point.error:.4f}"
