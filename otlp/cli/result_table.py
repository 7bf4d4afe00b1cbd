"""Result files for papers: CSV or LaTeX, by file extension.

Names are user input: escape them so that no program reads them as formulas or commands.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otlp.cli.output import write_whole
from otlp.errors import clean
from otlp.studies.compare import BOUND, OPTIMUM
from otlp.studies.estimate import Estimate
from otlp.studies.names import short_names
from otlp.studies.points import SweepPoint, SweepSetting

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of spreadsheet formulas."""

LATEX = {one: f"\\{one}" for one in "_%&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # At the start of a line, LaTeX would read it as an argument of the previous \\.
    "]": "{]}",
    "\n": " ",
}
"""LaTeX escapes of special characters."""


def write_table(path: Path, points: Sequence[SweepPoint], cuts: Mapping[str, Any]) -> None:
    """Write one line per rule and setting, with intervals, in the format of the extension.

    `cuts` are those of `otlp.studies.sweep.Grid`.
    """
    best = {point.setting: point for point in points if point.rule == OPTIMUM}
    names = short_names(point.rule for point in points)
    lines = [_line(point, best, names[point.rule], cuts) for point in points if point.rows]
    text = _latex(lines, cuts) if path.suffix.lower() == ".tex" else _csv(lines)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_records(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write flat records with all fields, in the format of the file extension."""
    text = _csv(lines) if path.suffix.lower() != ".tex" else _plain_latex(lines)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _line(
    point: SweepPoint, best: dict[SweepSetting, SweepPoint], name: str, cuts: Mapping[str, Any]
) -> dict[str, Any]:
    setting, apart = point.setting, Estimate(math.nan, math.nan, math.nan)
    if point.rule not in (OPTIMUM, BOUND):
        apart = point.below(best[setting])
    return {
        "scheme": setting.scheme,
        "n": setting.n,
        "temperature": setting.temperature,
        "top_k": setting.top_k or "",
        **{cut: value or "" for cut, value in cuts.items()},
        "rule": name,
        "rows": point.rows,
        "acceptance": point.acceptance.mean,
        "low": point.acceptance.low,
        "high": point.acceptance.high,
        "sampling_error": point.sampling_error,
        "below_optimum": apart.mean,
        "below_low": apart.low,
        "below_high": apart.high,
        "reason": point.reason,
    }


def _csv(lines: Sequence[dict[str, Any]]) -> str:
    made = io.StringIO()
    writer = csv.DictWriter(made, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in line.items()})
    return made.getvalue()


def _cell(value: Any) -> Any:
    """Return "" for NaN, and quote text that a spreadsheet would read as a formula."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _latex(lines: Sequence[dict[str, Any]], cuts: Mapping[str, Any]) -> str:
    """Format a tabular for the package booktabs."""
    rows = [
        (
            *(_escaped(str(line[name])) for name in ("scheme", "rule", "n", "temperature")),
            _escaped(str(line["top_k"] or "V")),
            _number(line["acceptance"], _half_width(line)),
            _number(line["below_optimum"], (line["below_high"] - line["below_low"]) / 2),
        )
        for line in lines
    ]
    heading = ("drafts", "rule", "$n$", "$T$", "$k$", "acceptance", "below the optimum")
    comment = "% 95% intervals over passages; differences from the optimum are paired\n"
    comment += "".join(f"% {name} = {value}\n" for name, value in cuts.items() if value)
    return comment + _tabular("llrrrrr", heading, rows)


def _half_width(line: Mapping[str, Any]) -> float:
    """Return the half-width over passages; with one passage, over samples, or NaN if exact."""
    over_passages = float(line["high"] - line["low"]) / 2
    return over_passages if over_passages > 0.0 else line["sampling_error"] or math.nan


def _plain_latex(lines: Sequence[dict[str, Any]]) -> str:
    heading = [_escaped(name.replace("_", " ")) for name in lines[0]] if lines else []
    rows = [
        [f"${one:.4g}$" if isinstance(one, float) else _escaped(str(one)) for one in line.values()]
        for line in lines
    ]
    return _tabular("l" * len(heading), heading, rows)


def _tabular(columns: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "\n".join(" & ".join(row) + r" \\" for row in rows)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{' & '.join(heading)} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def _number(mean: float, half: float) -> str:
    if math.isnan(mean):
        return ""
    return f"${mean:.4f}$" if math.isnan(half) else f"${mean:.4f} \\pm {half:.4f}$"


def _escaped(text: str) -> str:
    return "".join(LATEX.get(one, one) for one in clean(text))
