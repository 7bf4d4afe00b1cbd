"""Figures of measurements: block efficiency, where the time goes, quality against cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otlp.errors import EngineNotFoundError
from otlp.studies.cascade_curve import Point
from otlp.studies.decoding import BASELINE, Measurement, Setting

__all__ = ["draw_block_efficiency", "draw_cascades", "draw_time_split"]

AXES = {"paths": "paths K", "length": "path length L", "temperature": "temperature"}
SPLIT = ("draft", "target", "verification", "rest")


def draw_block_efficiency(path: Path, found: Sequence[Measurement], title: str) -> None:
    """Draw a panel for each of K, L and temperature that varies, the others at their largest.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    figure_type, save = _canvas()
    found = [one for one in found if one.setting.algorithm != BASELINE]
    values = {axis: sorted({getattr(one.setting, axis) for one in found}) for axis in AXES}
    varying = [axis for axis in AXES if len(values[axis]) > 1] or ["paths"]
    figure = figure_type(figsize=(5.0 * len(varying), 4.0), layout="constrained")
    panels = figure.subplots(1, len(varying), squeeze=False)[0]
    for panel, axis in zip(panels, varying, strict=True):
        fixed = {other: values[other][-1] for other in AXES if other != axis}
        for name in dict.fromkeys(one.setting.algorithm for one in found):
            _line(panel, axis, [one for one in found if _matches(one.setting, name, fixed)])
        panel.set_xticks(values[axis])
        panel.set_xlabel(AXES[axis])
        panel.set_title(", ".join(f"{AXES[key]} = {value}" for key, value in fixed.items()))
    panels[0].set_ylabel("tokens per target call")
    panels[0].legend(fontsize="small")
    figure.suptitle(title)
    save(figure, path)


def draw_time_split(path: Path, found: Sequence[Measurement], title: str) -> None:
    """Draw a bar for each measurement: milliseconds a token, by who spent them.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    figure_type, save = _canvas()
    figure = figure_type(figsize=(8.0, 1.0 + 0.3 * len(found)), layout="constrained")
    panel = figure.subplots()
    labels = [
        f"{one.setting.algorithm}, K={one.setting.paths}, L={one.setting.length}, "
        f"T={one.setting.temperature:g}"
        for one in found
    ]
    left = [0.0] * len(found)
    for part in SPLIT:
        widths = [one.milliseconds_per_token * one.time_split[part] for one in found]
        panel.barh(labels, widths, left=left, label=part)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    panel.invert_yaxis()
    panel.set_xlabel("milliseconds a token")
    panel.legend()
    panel.set_title(title)
    save(figure, path)


def draw_cascades(path: Path, points: Sequence[Point], title: str) -> None:
    """Draw quality against target calls a token, a line a cascade; sequential ones are dashed.

    Dashed: the token cascade (chow) and the oracles, whose calls are their deferrals.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    figure_type, save = _canvas()
    figure = figure_type(figsize=(10.0, 4.0), layout="constrained")
    panels = figure.subplots(1, 2)
    quality = {"log_likelihood": "log-likelihood a token", "accuracy": "mean probability"}
    for panel, (what, label) in zip(panels, quality.items(), strict=True):
        for number, name in enumerate(dict.fromkeys(point.method for point in points)):
            own = [point for point in points if point.method == name]
            found = [getattr(point, what) for point in own]
            heights = [one.mean for one in found]
            panel.plot([point.calls.mean for point in own], heights, f".-C{number}", label=name)
            shares = [point.deferral.mean for point in own if point.deferral is not None]
            if shares:
                kind = "sequential" if name.startswith("chow") else "oracle"
                panel.plot(shares, heights, f"--C{number}", lw=0.8, label=f"{name}, {kind}")
        panel.set_xlabel("target calls a token")
        panel.set_ylabel(label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
    figure.suptitle(title, fontsize="small")
    save(figure, path)


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
        marker="o",
        capsize=2,
        label=found[0].setting.algorithm,
    )


def _canvas() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise EngineNotFoundError('a figure needs matplotlib: pip install "otlp[plot]"') from None

    def save(figure: Any, path: Path) -> None:
        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=150)

    return Figure, save
