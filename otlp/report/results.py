"""Results of the commands that a report is made of: JSON, figure and printed tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otlp.studies.estimate import Estimate


@dataclass(frozen=True)
class Result:
    """The result of one command.

    Attributes
    ----------
    command : str
        As a shell takes it; empty if nothing was run.
    content : mapping
        The JSON that the command wrote; empty if the command was refused.
    figure : str
        The figure that the command drew, as SVG; empty if there is none.
    printed : sequence
        Text, and tables as rows of cells, the heads first.
    reason : str
        Why the command was refused; empty if it was not.
    """

    command: str
    content: Mapping[str, Any] = field(default_factory=dict)
    figure: str = ""
    printed: Sequence[str | list[list[str]]] = ()
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """Return command, reason and JSON, as JSON takes them."""
        return {"command": self.command, "reason": self.reason, "result": self.content or None}

    def __bool__(self) -> bool:
        """Whether there is a result."""
        return bool(self.content)


def as_estimate(record: list[float | None]) -> Estimate:
    """Read mean and interval as JSON has them; null is NaN."""
    return Estimate(*(float("nan") if value is None else float(value) for value in record))


def shifted(found: Estimate, by: float) -> Estimate:
    """Shift mean and interval."""
    return Estimate(found.mean + by, found.low + by, found.high + by)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Estimate a difference with the interval of independent means.

    Half of the interval is the root of the sum of squares of both halves.  The interval is too wide
    where both are over the same rows, and rows that are good for one are good for the other.
    """
    mean = one.mean - other.mean
    half = float(np.hypot(one.high - one.mean, other.high - other.mean))
    return Estimate(mean, mean - half, mean + half)


class Acceptances:
    """The points of ``otlp sweep``, by rule and number of drafts."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.points = {(point["rule"], point["n"]): point for point in content["points"]}

    def mean(self, rule: str, n: int) -> Estimate:
        """Mean acceptance."""
        return as_estimate(self.points[rule, n]["acceptance"])

    def above_optimum(self, rule: str, n: int) -> Estimate:
        """How far a rule is above the optimum, paired by passages."""
        below = as_estimate(self.points[rule, n]["below_optimum"])
        return Estimate(-below.mean, -below.high, -below.low)
