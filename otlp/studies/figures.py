"""Figures of the studies: times, acceptances, block efficiency, cascades."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otlp.studies.benchmark import Cell
from otlp.studies.canvas import figure
from otlp.studies.compare import OPTIMUM
from otlp.studies.points import AXES as SWEPT
from otlp.studies.points import SweepPoint, by_panel
from otlp.studies.style import look

if TYPE_CHECKING:
    from otlp.studies.cascade_curve import Point
    from otlp.studies.decoding import Measurement, Setting

AXES = {"paths": "paths K", "length": "path length L", "temperature": "temperature"}


def draw_times(path: Path, cells: Sequence[Cell]) -> None:
    """Draw median milliseconds of plan and certificate over (k, n); hollow: rows left out."""
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    with figure(path, 8.0, 4.5) as canvas:
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
        axes.set_xticks(range(len(sizes)), [f"({s.k or 'V'}, {s.n})" for s in sizes])
        axes.set_xlabel("(k, n): n drafts from the top k tokens; hollow: not all rows")
        axes.set_ylabel("median ms a token, with certificate")
        canvas.legend(loc="outside right center")


def draw_sweep(path: Path, points: Sequence[SweepPoint], over: str, title: str = "") -> None:
    """Draw mean acceptance with its interval, a line a rule, a panel for what else varies.

    Parameters
    ----------
    path : Path
    points : sequence of SweepPoint
    over : {"n", "temperature", "top_k"}
        What the lines go over.
    title : str

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    InvalidInputError
        If there is nothing to draw.
    """
    groups = by_panel(points, over)
    rules = list(dict.fromkeys(point.rule for point in points))
    columns = min(3, math.ceil(math.sqrt(len(groups)))) if len(groups) > 3 else len(groups)
    lines = math.ceil(len(groups) / columns)
    with figure(path, 3.0 + 3.5 * columns, 0.8 + 3.0 * lines) as canvas:
        panels = canvas.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for axes in panels[len(groups) :]:
            axes.set_axis_off()
        for axes, (label, found) in zip(panels, groups.items(), strict=False):
            axes.set_title(label, fontsize="medium", parse_math=False)
            values = list(dict.fromkeys(getattr(point.setting, over) for point in found))
            numbers = over != "top_k"  # sizes span decades, and one of them is "all"
            for rule in rules:
                own = [point for point in found if point.rule == rule and point.rows]
                if not own:
                    continue
                places = [getattr(point.setting, over) for point in own]
                wide = {"linewidth": 5.0, "zorder": 1} if rule == OPTIMUM else {}
                axes.errorbar(
                    places if numbers else [values.index(place) for place in places],
                    [point.acceptance.mean for point in own],
                    [point.error for point in own],
                    elinewidth=1.0,
                    capthick=1.0,
                    label=rule,
                    **look(rule, rules) | wide,
                )
            axes.set_xticks(
                values if numbers else range(len(values)),
                [f"{value:g}" if value is not None else "V" for value in values],
            )
        canvas.supxlabel(f"{SWEPT[over]}; bars: 95% intervals over passages", fontsize="medium")
        canvas.supylabel("mean acceptance", fontsize="medium")
        _legend(canvas, panels)
        canvas.suptitle(title, fontsize="medium", parse_math=False)


def draw_block_efficiency(path: Path, found: Sequence[Measurement], title: str) -> None:
    """Draw a panel for each of K, L and temperature that varies, the others at their largest."""
    from otlp.studies.decoding import BASELINE

    found = [one for one in found if one.setting.algorithm != BASELINE]
    values = {axis: sorted({getattr(one.setting, axis) for one in found}) for axis in AXES}
    varying = [axis for axis in AXES if len(values[axis]) > 1] or ["paths"]
    with figure(path, 5.0 * len(varying), 4.0) as canvas:
        panels = canvas.subplots(1, len(varying), squeeze=False)[0]
        for panel, axis in zip(panels, varying, strict=True):
            fixed = {other: values[other][-1] for other in AXES if other != axis}
            for name in dict.fromkeys(one.setting.algorithm for one in found):
                _line(panel, axis, [one for one in found if _matches(one.setting, name, fixed)])
            panel.set_xticks(values[axis])
            panel.set_xlabel(AXES[axis])
            panel.set_title(", ".join(f"{AXES[key]} = {value}" for key, value in fixed.items()))
        panels[0].set_ylabel("tokens per target call")
        _legend(canvas, panels)
        canvas.suptitle(title, parse_math=False)


def _legend(canvas: Any, panels: Iterable[Any], **place: Any) -> None:
    """One legend for all panels, each name once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        lines, names = panel.get_legend_handles_labels()
        handles |= dict(zip(names, lines, strict=True))
    canvas.legend(handles.values(), handles.keys(), **{"loc": "outside right center", **place})


def draw_cascades(path: Path, points: Sequence[Point], title: str) -> None:
    """Draw quality against target calls a token; what does not sample drafts stands apart."""
    quality = {"log_likelihood": "log-likelihood a token", "accuracy": "mean probability"}
    apart = ("sequential-", "oracle-", "sequence-", "bild-")
    names = list(dict.fromkeys(point.method for point in points))
    with figure(path, 7.6, 7.4) as canvas:
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
            panel.set_xlabel("target calls a token")
        _legend(canvas, grid.ravel(), loc="outside lower center", ncols=4)
        canvas.suptitle(title, fontsize="small", parse_math=False)


def _matches(setting: Setting, name: str, fixed: dict[str, Any]) -> bool:
    """One path stands for itself wherever K is fixed: single-path algorithms know no other."""
    return setting.algorithm == name and all(
        getattr(setting, key) == value or (key == "paths" and name in ("speculative", "block"))
        for key, value in fixed.items()
    )


def _line(panel: Any, axis: str, found: Sequence[Measurement]) -> None:
    found = sorted(found, key=lambda one: float(getattr(one.setting, axis)))
    if not found:
        return
    estimates = [one.timed.block_efficiency for one in found]
    panel.errorbar(
        [getattr(one.setting, axis) for one in found],
        [estimate.mean for estimate in estimates],
        [estimate.high - estimate.mean for estimate in estimates],
        label=found[0].setting.algorithm,
        **look(found[0].setting.algorithm),
    )
