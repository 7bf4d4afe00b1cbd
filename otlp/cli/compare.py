"""``otlp compare``: one-step verification rules under draft schemes, on rows of a capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp.cli import options
from otlp.cli.acceptances import measure_all, note_points, print_points, split_rules
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.output import console, note, progress, show, table, write_figure, write_result
from otlp.cli.result_table import write_table
from otlp.cli.rows import ChosenRows
from otlp.data.sampling_cuts import SAMPLING
from otlp.drafts.by_name import SCHEMES
from otlp.parallel.rows import CaptureRows
from otlp.studies.compare import BOUND, OPTIMUM, RULES
from otlp.studies.figures import draw_sweep
from otlp.studies.points import LOSSY, SweepPoint
from otlp.studies.sweep import Grid, sweep


@options.grouped_command(
    epilog="""\b
Examples:
  otlp compare                                  all schemes and published rules, ten rows
  otlp compare --n 2,4,8 --schemes iid --rules naive,k-seq,auto --rows 50
  otlp compare mine.safetensors --temperature 0.6 --json accepted.json --figure accepted.png
  otlp compare --rows 160 --jobs 4                       four processes, same numbers
  otlp compare --schemes greedy,hub,independent --n 2 --rules greedy,hub,max-flow --top-k 20
  otlp compare --schemes iid,without-replacement --rules coupled,likeliest,recursive-rejection
  otlp compare --schemes iid --n 1 --lossy      with typical acceptance, ensembles, cascades
  otlp compare --schemes iid --n 2 --rules mine.py:verify,k-seq      your own rule, audited first
"""
)
@capture_argument
@options.n_option("1,2,3,4")
@options.rows_option(10)
@options.row_options()
@options.schemes_option(",".join(SCHEMES))
@options.own_rules_option(",".join(RULES))
@click.option("--lossy", is_flag=True, help="Also measure the loss of lossy rules.")
@options.time_limit_option(10.0)
@options.jobs_option
@options.json_option("Write the acceptance on every row to a file.")
@options.figure_option("Plot the acceptance over n.")
@options.table_option
def command(
    capture: CaptureFile,
    n: tuple[int, ...],
    rows: int,
    schemes: tuple[str, ...],
    rules: tuple[str, ...],
    lossy: bool,
    time_limit: float,
    jobs: int | None,
    json_path: Path | None,
    figure_path: Path | None,
    table_path: Path | None,
    **cut: Any,
) -> None:
    """Compare the acceptance of verification rules under every draft scheme.

    Each table has one line per rule and one column per n.  A cell shows the mean acceptance over
    rows, and the acceptance in percent of the optimum.  The acceptance is the probability that the
    verified token is a draft token; the optimum is the acceptance of the best rule for the scheme.
    The information bound is the sum of min(p, probability of being drafted).  "independent" drafts
    use the draft model at temperatures 1, 0.71, 1.41, 0.5, 2, ...  For n = 2 a second table shows,
    for hub and recursive rejection, the probability that the output is the first draft token, and
    the probability that the output is the second draft token and differs from the first.

    "coupled" and "likeliest" sample a token from the target and accept the token if it is one of n
    candidates.  "coupled": the n best candidates of a draft that shares the target's noise.
    "likeliest": the draft's n most likely tokens.  Both rules are the same for every scheme.

    A row of 4,096 tokens takes about half a second.  All values are exact, except recursive
    rejection without replacement if it needs more than a million sequences of rejected tokens (as
    for n = 3 and 1,000 tokens): this acceptance is estimated.

    With --lossy another table shows rules that change the text on purpose.  The columns are the
    total variation (TV) and KL divergence between output and target, the acceptance with one draft
    token, and alpha* + TV, which no rule's acceptance exceeds (alpha*: the lossless optimum).

    Your own rules are called as in `otlp audit`, in a separate process.  Each rule is audited on a
    synthetic problem with at least five tokens, under each scheme and n, and marked ! if it is not
    lossless, or - if it fails.  Then drafts are verified until the half-width of the 95% interval
    is below .002, or for --time-limit seconds.  FILE.py is executed; compare only files that you
    trust.
    """
    chosen = ChosenRows.spread(capture, rows)
    for name in ("top_k", "sampling_top_k"):
        chosen.capture.check_top_k(cut[name], name)
    same = {name: cut[name] for name in ("draft_temperature", "top_p", "whole_draft", *SAMPLING)}
    solvers, own = split_rules(rules)
    where_and_what = n, (cut["temperature"],), (cut["top_k"],), schemes, solvers
    grid = Grid(*where_and_what, **same, time_limit=time_limit)
    source = CaptureRows(chosen.capture, chosen.numbers)
    total = len(chosen.numbers) * len(grid.settings)
    results: list[dict[str, Any]] = []
    with progress("comparing", total) as step:
        points = sweep(
            source, grid, progress=step, each=lambda entry: results.extend(_rows(entry)), jobs=jobs
        )
    best = {
        (one["row"], one["scheme"], one["n"]): one["acceptance"]
        for one in results
        if one["rule"] == OPTIMUM
    }
    own_losses: list[dict[str, Any]] = []
    for rule, one in measure_all(own, source, grid):
        points.append(one.point(rule, source))
        results += one.records(rule, source)
        if lossy:
            from otlp.cli.losses import measure_own_losses

            own_losses += measure_own_losses(rule, one, source.numbers, best)
    losses: list[dict[str, Any]] = []
    if lossy:
        from otlp.cli.losses import measure_losses, print_losses, print_own_losses

        with progress("lossy rules", len(chosen.numbers)) as step:
            losses = measure_losses(source, cut, step)
    content = {**chosen.chosen, **cut, "time_limit_seconds": time_limit, "results": results}
    content |= {"losses": losses, "own_losses": own_losses} if lossy else {}
    write_result(json_path, "compare", content)
    if table_path:
        write_table(table_path, points, grid.cuts)
    write_figure(figure_path, draw_sweep, points, "n", chosen.title)
    console.print(f"Mean acceptance: {chosen.title}")
    print_points(points, "n", _cell)
    _print_drafts(results)
    if lossy:
        print_losses(losses)
        print_own_losses(own_losses)
    console.print()
    chosen.print_truncation(chosen.truncations(**cut))
    note_points(points, time_limit)
    if any(point.sampling_error for point in points):
        note("±: half of the 95% sampling interval on these rows; values without ± are exact.")
    if any(point.reason.startswith(LOSSY) for point in points):
        note("!: the rule changes the target's distribution; a higher acceptance is not better.")


def _print_drafts(results: Sequence[Mapping[str, Any]]) -> None:
    """Print mean acceptances of the first and the second draft token, where rules return them."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in results:
        if one["n"] == 2 and one["first_draft"] is not None:
            parts = one["first_draft"], one["acceptance"] - one["first_draft"]
            found.setdefault((one["rule"], one["scheme"]), []).append(parts)
    if found:
        console.print()
        made = table("n = 2", "drafts", "first draft", "second, not first")
        for key, both in found.items():
            made.add_row(*key, *(f"{mean:.4f}" for mean in np.mean(both, axis=0)))
        show(made)


def _rows(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a record per rule for one row, for `write_result`."""
    where = {name: entry[name] for name in ("row", "scheme", "n")}
    for rule, found in entry["rules"].items():
        usual = {"guarantee": "", "reason": "", "first_draft": None, "acceptance_interval": None}
        yield {**where, "rule": rule, **usual, **found}


def _cell(found: SweepPoint, best: SweepPoint) -> str:
    mean = found.acceptance.mean
    shown = f"{mean:.4f}"
    if found.sampling_error:
        shown += f" ±{found.sampling_error:.4f}"
    if found.partial:
        return f"{shown}*"
    if found.rule in (OPTIMUM, BOUND) or best.partial:
        return shown
    if best.acceptance.mean == 0.0:
        return shown
    share = mean / best.acceptance.mean
    shown += " 100%" if abs(share - 1.0) < 0.0005 else f" {share:.1%}"
    return f"{shown} !" if found.reason.startswith(LOSSY) else shown
