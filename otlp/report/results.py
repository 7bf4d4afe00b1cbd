"""Results of the commands of a report: JSON, figure and printed tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otlp.studies.estimate import Estimate


@dataclass(frozen=True)
class Result:
    """The result of one command.

    Attributes
    ----------
    command : str
        Shell command; empty if nothing was run.
    content : mapping
        JSON result of the command; empty if the command failed.
    figure : str
        Figure of the command as SVG; empty if there is none.
    printed : sequence
        Printed text, and tables as rows of cells with the header first.
    reason : str
        Error message; empty if the command succeeded.
    """

    command: str
    content: Mapping[str, Any] = field(default_factory=dict)
    figure: str = ""
    printed: Sequence[str | list[list[str]]] = ()
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """Return command, reason and result as JSON-compatible values."""
        return {"command": self.command, "reason": self.reason, "result": self.content or None}

    def __bool__(self) -> bool:
        """Whether there is a result."""
        return bool(self.content)


class Acceptances:
    """Acceptances in the result of ``otlp sweep``, by rule and number of drafts."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.points = {(point["rule"], point["n"]): point for point in content["points"]}

    def mean(self, rule: str, n: int) -> Estimate:
        """Return the mean acceptance."""
        return Estimate.of(self.points[rule, n]["acceptance"])

    def minus_optimum(self, rule: str, n: int) -> Estimate:
        """Return acceptance minus the optimum, with the interval of paired differences."""
        below = Estimate.of(self.points[rule, n]["below_optimum"])
        return Estimate(-below.mean, -below.high, -below.low)
