"""Figures of the studies: times, acceptances, block efficiency, where time goes, cascades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otlp.studies.benchmark import Cell
from otlp.studies.canvas import figure
from otlp.studies.compare import OPTIMUM
from otlp.studies.points import AXES as SWEPT
from otlp.studies.points import SweepPoint, by_panel, varying
from otlp.studies.style import BLUE, GREY, ORANGE, RED, SKY, look

if TYPE_CHECKING:
    from otlp.studies.cascade_curve import Point
    from otlp.studies.decoding import Measurement, Setting
    from otlp.studies.loop_setting import LoopSetting
    from otlp.studies.round_costs import RoundCosts
    from otlp.studies.timed_loop import SideBySide
    from otlp.studies.tuning import Prediction

AXES = {"paths": "paths K", "length": "path length L", "temperature": "temperature"}
SPLIT = {"draft": SKY, "target": BLUE, "verification": ORANGE, "rest": GREY}


def draw_times(path: Path, cells: Sequence[Cell]) -> None:
    """Draw median milliseconds over (k, n); hollow where rows are left out."""
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
        axes.set_ylabel("median ms a token")
        canvas.legend(loc="outside right center")


def draw_sweep(
    path: Path, points: Sequence[SweepPoint], over: str | None = None, title: str = ""
) -> None:
    """Draw mean acceptance with its interval, a line a rule, a panel for what else varies.

    Parameters
    ----------
    path : Path
    points : sequence of SweepPoint
    over : {"n", "temperature", "top_k"}, optional
        What the lines go over; by default the first of these that varies.
    title : str

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    InvalidInputError
        If there is nothing to draw.
    """
    over = over or varying(points)
    groups = by_panel(points, over)
    rules = list(dict.fromkeys(point.rule for point in points))
    across = f"{SWEPT[over]}; bars: 95% intervals over passages"
    with _panels(path, list(groups), across, title) as (panels, handles):
        for axes, found in zip(panels.values(), groups.values(), strict=True):
            values = list(dict.fromkeys(getattr(point.setting, over) for point in found))
            numbers = over != "top_k"  # sizes span decades, and one of them is "all"
            for rule in rules:
                own = [point for point in found if point.rule == rule and point.rows]
                places = [getattr(point.setting, over) for point in own]
                handle = axes.errorbar(
                    places if numbers else [values.index(place) for place in places],
                    [point.acceptance.mean for point in own],
                    [point.acceptance.high - point.acceptance.mean for point in own],
                    elinewidth=1.0,
                    capthick=1.0,
                    **_style(rule, rules),
                )
                if own:
                    handles[rule] = handle
            axes.set_xticks(
                values if numbers else range(len(values)),
                [f"{value:g}" if value is not None else "V" for value in values],
            )


@contextmanager
def _panels(
    path: Path, labels: Sequence[str], across: str, title: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Panels of mean acceptances by label, and the handles of their lines for one legend."""
    columns = min(3, len(labels) if len(labels) <= 3 else math.ceil(math.sqrt(len(labels))))
    lines = math.ceil(len(labels) / columns)
    handles: dict[str, Any] = {}
    with figure(path, 3.0 + 3.5 * columns, 0.8 + 3.0 * lines) as canvas:
        grid = canvas.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for axes in grid[len(labels) :]:
            axes.set_axis_off()
        for axes, label in zip(grid, labels, strict=False):
            axes.set_title(label, fontsize="medium", parse_math=False)
        yield dict(zip(labels, grid, strict=False)), handles
        canvas.supxlabel(across, fontsize="medium")
        canvas.supylabel("mean acceptance", fontsize="medium")
        canvas.legend(handles.values(), handles.keys(), loc="outside right center")
        canvas.suptitle(title, fontsize="medium", parse_math=False)


def _style(rule: str, rules: Sequence[str]) -> dict[str, Any]:
    wide = {"linewidth": 5.0, "zorder": 1} if rule == OPTIMUM else {}
    return look(rule, rules) | wide


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
        handles: dict[str, Any] = {}
        for panel in panels:
            lines, names = panel.get_legend_handles_labels()
            handles |= dict(zip(names, lines, strict=True))
        canvas.legend(handles.values(), handles.keys(), loc="outside right center")
        canvas.suptitle(title, parse_math=False)


def draw_time_split(path: Path, found: Sequence[Measurement], title: str) -> None:
    """Draw a bar for each measurement: milliseconds a token, by who spent them."""
    labels = [
        f"{one.setting.algorithm}, K={one.setting.paths}, L={one.setting.length}, "
        f"T={one.setting.temperature:g}"
        for one in found
    ]
    with figure(path, 8.0, 1.0 + 0.3 * len(found)) as canvas:
        panel = canvas.subplots()
        left = [0.0] * len(found)
        for part, colour in SPLIT.items():
            widths = [one.milliseconds_per_token * one.time_split[part] for one in found]
            panel.barh(labels, widths, left=left, label=part, color=colour)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        panel.invert_yaxis()
        panel.set_xlabel("milliseconds a token")
        canvas.legend(loc="outside right center")
        panel.set_title(title, parse_math=False)


def draw_tuning(
    path: Path,
    found: Sequence[Prediction],
    timed: SideBySide | None,
    costs: RoundCosts,
    clock: str,
    title: str,
) -> None:
    """Draw tokens a second, predicted and timed, and what calls cost by drafted tokens."""
    with figure(path, 9.0, max(3.2, 1.2 + 0.22 * len(found))) as canvas:
        left, right = canvas.subplots(1, 2, width_ratios=(3, 2))
        for at, one in enumerate(found):
            rate = one.tokens_per_second
            width = [[max(rate.mean - rate.low, 0.0)], [max(rate.high - rate.mean, 0.0)]]
            colour = BLUE if one.setting.branching else GREY
            left.errorbar(rate.mean, at, xerr=width, fmt="o", color=colour,
                          label=None if at else "predicted")  # fmt: skip
            way = None if timed is None else timed.ways.get(str(one.setting))
            if way is not None:
                left.plot(way.rate(clock).mean, at, "D", color=RED, mfc="none")
        left.plot([], [], "D", color=RED, mfc="none", label="timed")
        left.set_yticks(range(len(found)), [str(one.setting) for one in found])
        left.invert_yaxis()
        left.set_xlabel(f"tokens a second ({clock} time)")
        left.legend()
        left.set_title(title, parse_math=False)
        most = max(one.setting.nodes for one in found)
        nodes = range(most + 1)
        right.plot(nodes, [1e3 * costs.call(n) for n in nodes], color=BLUE, label="target call")
        rounds: dict[str, list[LoopSetting]] = {}
        for setting in sorted({one.setting._replace(draft_temperature=None) for one in found}):
            tree = setting.algorithm == "tournament"
            rounds.setdefault("trees" if tree else f"K = {setting.paths}", []).append(setting)
        for name, own in rounds.items():
            own.sort(key=lambda one: one.nodes)
            if own[0].branching:
                cost = [1e3 * costs.seconds(one) for one in own]
                right.plot([one.nodes for one in own], cost, "--", label=f"round, {name}")
        right.axhline(1e3 * costs.plain, color=GREY, linewidth=0.8, label="plain")
        right.set_xlabel("drafted tokens")
        right.set_ylabel("milliseconds")
        right.legend()


def draw_cascades(path: Path, points: Sequence[Point], title: str) -> None:
    """Draw quality against target calls a token, a line a cascade; sequential ones stand apart.

    On the right: the token cascade (chow) and the oracles, whose calls are their deferrals.
    """
    quality = {"log_likelihood": "log-likelihood a token", "accuracy": "mean probability"}
    with figure(path, 7.6, 7.4) as canvas:
        grid = canvas.subplots(2, 2, sharex="col", sharey="row")
        for (panel, apart), (what, label) in zip(grid, quality.items(), strict=True):
            names = list(dict.fromkeys(point.method for point in points))
            for name in names:
                style = look(name, names)
                own = [point for point in points if point.method == name]
                found = [getattr(point, what) for point in own]
                heights = [one.mean for one in found]
                panel.plot([point.calls.mean for point in own], heights, label=name, **style)
                shares = [point.deferral.mean for point in own if point.deferral is not None]
                if shares:
                    kind = "sequential" if name.startswith("chow") else "oracle"
                    dashed = style | {"linestyle": "--"}
                    apart.plot(shares, heights, label=f"{name}, {kind}", **dashed)
            panel.set(title="speculative", ylabel=label)
            apart.set(title="sequential, oracles")
        for panel in grid[-1]:
            panel.set_xlabel("target calls a token")
        (handles, labels), (more, names) = (one.get_legend_handles_labels() for one in grid[0])
        canvas.legend([*handles, *more], [*labels, *names], loc="outside lower center", ncols=4)
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
    estimates = [one.block_efficiency for one in found]
    panel.errorbar(
        [getattr(one.setting, axis) for one in found],
        [estimate.mean for estimate in estimates],
        [
            [estimate.mean - estimate.low for estimate in estimates],
            [estimate.high - estimate.mean for estimate in estimates],
        ],
        label=found[0].setting.algorithm,
        **look(found[0].setting.algorithm),
    )
