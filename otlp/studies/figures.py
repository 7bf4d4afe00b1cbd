"""Figures of the studies: times, acceptances, block efficiency, cascades."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from otlp.errors import InvalidInputError, clean
from otlp.studies.benchmark import Cell
from otlp.studies.canvas import figure
from otlp.studies.compare import BOUND, OPTIMUM
from otlp.studies.names import short_names
from otlp.studies.overlap import OverlapGroup
from otlp.studies.points import AXES as SWEPT
from otlp.studies.points import LOSSY, SweepPoint, by_panel
from otlp.studies.style import BLUE, NAMES, ONE_COLUMN, PRINT, TWO_COLUMNS, look

if TYPE_CHECKING:
    from otlp.studies.cascade_curve import Point
    from otlp.studies.decoding import Measurement, Setting

OVERLAP_WIDTH = 4.6
"""Width of the overlap figure, in inches."""

AXES = {"paths": "paths K", "length": "path length L", "temperature": "temperature"}


def draw_times(path: Path, cells: Sequence[Cell]) -> None:
    """Draw median milliseconds of plan and certificate over (k, n); hollow: rows skipped."""
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    with figure(path, 8.0, 4.5, NAMES) as canvas:
        axes = canvas.subplots()
        solvers = list(dict.fromkeys(cell.solver for cell in cells))
        for solver in solvers:
            style = look(solver, solvers)
            own = [cell for cell in cells if cell.solver == solver and cell.solved]
            points = [(sizes.index(cell.size), cell.milliseconds()) for cell in own]
            if points:
                axes.plot(*zip(*points, strict=True), label=solver, **style)
            for place, cell in zip(points, own, strict=True):
                if cell.partial:
                    axes.plot(*place, markerfacecolor="white", **style)
        axes.set_yscale("log")
        least, most = axes.get_ylim()
        axes.yaxis.set_major_formatter("{x:g}")
        # A range of less than a decade may have no major tick.
        axes.yaxis.set_minor_formatter("{x:g}" if most < 10.0 * least else "")
        axes.set_xticks(range(len(sizes)), [f"({s.k or 'V'}, {s.n})" for s in sizes])
        axes.set_xlabel("(k, n): n drafts from the top k tokens; hollow: not all rows")
        axes.set_ylabel("median ms of plan and certificate")
        canvas.legend(loc="outside right center")


def draw_sweep(path: Path, points: Sequence[SweepPoint], over: str, title: str = "") -> None:
    """Draw mean acceptances (upper panels) and paired distances to the optimum (lower panels).

    Bars are 95% intervals: in upper panels over passages for the optimum and over samples for
    estimated acceptances; in lower panels over passages for the differences.  There is one line per
    rule, and one panel per combination of the other settings.  The figure is as wide as one or two
    columns of a paper.

    Parameters
    ----------
    path : Path
    points : sequence of SweepPoint
    over : {"n", "temperature", "top_k"}
        Setting on the horizontal axis.
    title : str

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    InvalidInputError
        If `points` is empty.
    """
    groups = by_panel(points, over)
    rules = list(dict.fromkeys(point.rule for point in points))
    columns = min(3, math.ceil(math.sqrt(len(groups)))) if len(groups) > 3 else len(groups)
    lines = math.ceil(len(groups) / columns)
    width = ONE_COLUMN if columns == 1 else TWO_COLUMNS
    with figure(path, width, 0.9 + 3.1 * lines, PRINT | NAMES) as canvas:
        heights = {"height_ratios": [2, 1] * lines}
        panels = canvas.subplots(
            2 * lines, columns, sharex="col", sharey="row", squeeze=False, gridspec_kw=heights
        )
        pairs = list(zip(panels[::2].ravel(), panels[1::2].ravel(), strict=True))
        for pair in pairs[len(groups) :]:
            for axes in pair:
                axes.set_axis_off()
        for (upper, lower), (label, found) in zip(pairs, groups.items(), strict=False):
            upper.set_title(clean(label))
            _sweep_lines(upper, lower, found, over, rules)
        for upper, lower in pairs[: len(groups) : columns]:
            upper.set_ylabel("mean acceptance")
            lower.set_ylabel("below the optimum")
        for _, lower in pairs[-columns:]:
            lower.set_xlabel(SWEPT[over])
        _legend(canvas, panels.ravel(), loc="outside lower center", ncols=2 if columns == 1 else 4)
        caption = "; ".join(filter(None, (title, "bars: 95% intervals over passages")))
        caption = fill(clean(caption), 52 if columns == 1 else 110)
        canvas.suptitle(caption, fontsize="medium")


def _sweep_lines(
    upper: Any, lower: Any, found: Sequence[SweepPoint], over: str, rules: Sequence[str]
) -> None:
    """Draw the lines of an upper panel and of its lower panel."""
    values = list(dict.fromkeys(getattr(point.setting, over) for point in found))
    best = {getattr(point.setting, over): point for point in found if point.rule == OPTIMUM}
    numbers = over != "top_k"  # values of top_k span decades and include "all"
    bars = {"elinewidth": 0.8, "capthick": 0.8}
    for rule in rules:
        own = [point for point in found if point.rule == rule and point.rows]
        if not own:
            continue
        at = [getattr(point.setting, over) for point in own]
        places = at if numbers else [values.index(place) for place in at]
        drawn = look(rule, rules) | ({"linewidth": 5.0, "zorder": 1} if rule == OPTIMUM else {})
        lossy = any(point.reason.startswith(LOSSY) for point in own)
        label = _label(rule, rules) + (" (not lossless)" if lossy else "")
        means = np.array([p.acceptance.mean for p in own])
        halves = np.array([p.error if rule == OPTIMUM else p.sampling_error for p in own])
        ends = np.clip([means - halves, means + halves], 0.0, 1.0)
        shown = np.abs(ends - means) if np.nansum(halves) > 0.0 else None
        upper.errorbar(places, means, shown, label=label, **bars, **drawn)
        if rule not in (OPTIMUM, BOUND):
            apart = [p.below(best[place]) for p, place in zip(own, at, strict=True)]
            means, highs = np.array([(one.mean, one.high) for one in apart]).T
            halves = np.where(np.isnan(highs), [p.sampling_error for p in own], highs - means)
            lower.errorbar(places, means, halves, **bars, **drawn)
    lower.tick_params(labelbottom=True)
    lower.set_xticks(
        values if numbers else range(len(values)),
        [f"{value:g}" if value is not None else "V" for value in values],
    )


def draw_overlap(path: Path, groups: Sequence[OverlapGroup], title: str = "") -> None:
    """Draw the mean overlap of each group of rows; bars are 95% intervals over passages.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    InvalidInputError
        If `groups` is empty.
    """
    if not groups:
        raise InvalidInputError("groups must not be empty: a capture without rows has no overlap")
    with figure(path, OVERLAP_WIDTH, 1.1 + 0.22 * len(groups), PRINT | NAMES) as canvas:
        axes = canvas.subplots()
        labels = []
        for place, group in enumerate(groups):
            mean, low, high = (group.overlap.mean, group.overlap.low, group.overlap.high)
            bars = None if math.isnan(low) else [[mean - max(low, 0.0)], [min(high, 1.0) - mean]]
            style = {"color": BLUE, "marker": "o", "capthick": 0.8, "elinewidth": 0.8}
            axes.errorbar([mean], [place], xerr=bars, **style)
            label = group.label if len(group.label) < 26 else f"...{group.label[-23:]}"
            labels.append(" ".join(f"{group.by}: {clean(label)}".rstrip(": ").split()))
        axes.set_yticks(range(len(groups)), labels)
        axes.invert_yaxis()
        axes.set_xlim(0.0, 1.0)
        axes.set_xlabel("overlap, with 95% intervals over passages")
        canvas.suptitle(fill(clean(title), 64), fontsize="medium")


def _label(name: str, among: Sequence[str]) -> str:
    """Return a short name; matplotlib omits labels that start with "_", so prefix them."""
    short = clean(short_names(among)[name])
    return f"./{short}" if short.startswith("_") else short


def draw_block_efficiency(path: Path, found: Sequence[Measurement], title: str) -> None:
    """Draw one panel for each of K, L and temperature that varies; the others at their maximum."""
    from otlp.studies.decoding import BASELINE

    found = [one for one in found if one.setting.algorithm != BASELINE]
    values = {axis: sorted({getattr(one.setting, axis) for one in found}) for axis in AXES}
    varying = [axis for axis in AXES if len(values[axis]) > 1] or ["paths"]
    with figure(path, 5.0 * len(varying), 4.0, NAMES) as canvas:
        panels = canvas.subplots(1, len(varying), squeeze=False)[0]
        for panel, axis in zip(panels, varying, strict=True):
            fixed = {other: values[other][-1] for other in AXES if other != axis}
            names = list(dict.fromkeys(one.setting.algorithm for one in found))
            for name in names:
                own = [one for one in found if _matches(one.setting, name, fixed)]
                _line(panel, axis, own, names)
            panel.set_xticks(values[axis])
            panel.set_xlabel(AXES[axis])
            panel.set_title(", ".join(f"{AXES[key]} = {value}" for key, value in fixed.items()))
        panels[0].set_ylabel("tokens per target call")
        _legend(canvas, panels)
        canvas.suptitle(clean(title))


def _legend(canvas: Any, panels: Iterable[Any], **place: Any) -> None:
    """Add one legend for all panels, with each name once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        lines, names = panel.get_legend_handles_labels()
        handles |= dict(zip(names, lines, strict=True))
    canvas.legend(handles.values(), handles.keys(), **{"loc": "outside right center", **place})


def draw_cascades(path: Path, points: Sequence[Point], title: str) -> None:
    """Draw quality against target calls per token; speculative cascades on the left."""
    quality = {"log_likelihood": "log-likelihood per token", "accuracy": "mean probability"}
    apart = ("sequential-", "oracle-", "sequence-", "bild-")
    names = list(dict.fromkeys(point.method for point in points))
    with figure(path, 7.6, 7.4, NAMES) as canvas:
        grid = canvas.subplots(2, 2, sharex="col", sharey="row")
        for panels, (what, label) in zip(grid, quality.items(), strict=True):
            for name in names:
                own = [point for point in points if point.method == name and getattr(point, what)]
                style = look(name, names)
                if name.startswith(("sequential-", "oracle-")):
                    style = look(name.partition("-")[2]) | {"linestyle": "--"}
                panels[int(name.startswith(apart))].plot(
                    [point.calls.mean for point in own],
                    [getattr(point, what).mean for point in own],
                    label=name,
                    **style,
                )
            panels[0].set(title="speculative", ylabel=label)
            panels[1].set(title="sequential, oracles, BiLD as published")
        for panel in grid[-1]:
            panel.set_xlabel("target calls per token")
        _legend(canvas, grid.ravel(), loc="outside lower center", ncols=4)
        canvas.suptitle(clean(title), fontsize="small")


def _matches(setting: Setting, name: str, fixed: dict[str, Any]) -> bool:
    """Return whether a setting has this name and values; single-path algorithms match any K."""
    return setting.algorithm == name and all(
        getattr(setting, key) == value or (key == "paths" and name in ("speculative", "block"))
        for key, value in fixed.items()
    )


def _line(panel: Any, axis: str, found: Sequence[Measurement], names: Sequence[str]) -> None:
    found = sorted(found, key=lambda one: float(getattr(one.setting, axis)))
    if not found:
        return
    estimates = [one.timed.block_efficiency for one in found]
    panel.errorbar(
        [getattr(one.setting, axis) for one in found],
        [estimate.mean for estimate in estimates],
        [estimate.high - estimate.mean for estimate in estimates],
        label=_label(found[0].setting.algorithm, names),
        **look(found[0].setting.algorithm, names),
    )
