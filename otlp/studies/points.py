"""Mean acceptance of a rule at a setting over all rows, with its interval.

Passages are the independent units of the interval, because rows of one passage are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, mean_over_units

PRECISION = 0.002
"""Sufficient half width of the interval of an estimated mean acceptance."""

LOSSY = "NOT LOSSLESS"
"""Prefix of the reason of a rule that is measured but should not be used."""

AXES = {"n": "n, number of drafts", "temperature": "temperature", "top_k": "k, the draft's top k"}
"""Settings that can be on the horizontal axis of a curve, with their labels."""


@dataclass(frozen=True)
class SweepSetting:
    """Draft scheme and distributions.

    Attributes
    ----------
    scheme : str
        Name in `otlp.drafts.by_name.SCHEMES`.
    n : int
        Number of drafts.
    temperature : float
        Temperature of both models, or of the target if the grid sets a draft temperature.
    top_k : int or None
        Number of most likely tokens of the draft that are kept; None: all.
    """

    scheme: str
    n: int
    temperature: float
    top_k: int | None


@dataclass(frozen=True)
class SweepPoint:
    """Acceptance of a rule at a setting, over all rows.

    Attributes
    ----------
    setting : SweepSetting
    rule : str
        A solver's name, or `OPTIMUM` or `BOUND` of `otlp.studies.compare`.
    acceptance : Estimate
        Mean over the rows on which the rule applied, with its 95% interval.  The interval is NaN
        if these rows are of one passage; the mean is NaN if there are no such rows.
    rows : int
        Number of rows on which the rule applied.
    reason : str
        First nonempty reason of a row; empty if no row has a reason.
    partial : bool
        Whether the rule applied on some rows and not on others.
    sampling_error : float
        Half width of the 95% interval of the mean over these fixed rows, if acceptances were
        estimated by sampling; 0 if exact.
    values, passages : ndarray, shape (rows of the source,)
        Acceptance (NaN where the rule did not apply) and passage of each row.
    """

    setting: SweepSetting
    rule: str
    acceptance: Estimate
    rows: int
    reason: str
    partial: bool
    sampling_error: float
    values: FloatArray = field(repr=False, compare=False)
    passages: IntArray = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        setting: SweepSetting,
        rule: str,
        acceptances: FloatArray,
        reason: str,
        passages: IntArray,
        sampling_error: float = 0.0,
    ) -> SweepPoint:
        """Average the acceptances over rows; NaN where the rule did not apply."""
        found, size = mean_over_units(acceptances, passages)
        partial = 0 < size < acceptances.size
        rest = reason, partial, sampling_error, acceptances, passages
        return cls(setting, rule, found, size, *rest)

    def below(self, best: SweepPoint) -> Estimate:
        """Estimate the mean of `best` minus this point over common rows, paired by passages."""
        return mean_over_units(best.values - self.values, self.passages)[0]

    @property
    def error(self) -> float:
        """Half width of the interval over passages, else `sampling_error`; NaN if that is 0."""
        over = (self.acceptance.high - self.acceptance.low) / 2.0
        return self.sampling_error or math.nan if math.isnan(over) else over

    def record(self, best: SweepPoint) -> dict[str, Any]:
        """Return all fields and the distance to the optimum as JSON values."""
        found = asdict(self) | {"acceptance": self.acceptance.record()}
        found["below_optimum"] = self.below(best).record()
        del found["values"], found["passages"]
        return {"row_count": found.pop("rows"), **found.pop("setting"), **found}


def varying(points: Sequence[SweepPoint]) -> str:
    """Return the first of `AXES` that has several values, or n if all have one value."""
    return next((axis for axis in AXES if _varies(points, axis)), "n")


def by_panel(points: Sequence[SweepPoint], over: str) -> dict[str, list[SweepPoint]]:
    """Group the points by panel: points of a panel differ only in `over` and the rule.

    Keys of the result describe the other settings.

    Raises
    ------
    InvalidInputError
        If `points` is empty, or `over` is not one of `AXES`.
    """
    if not points or over not in AXES:
        raise InvalidInputError(
            f"points must not be empty and over must be one of {', '.join(AXES)}; got "
            f"{len(points)} points and over = {over!r}"
        )
    shown = [axis for axis in AXES if axis != over and _varies(points, axis)]
    panels: dict[str, list[SweepPoint]] = {}
    for point in points:
        values = {axis.replace("_", "-"): getattr(point.setting, axis) or "V" for axis in shown}
        words = [point.setting.scheme, *(f"{name} = {value}" for name, value in values.items())]
        panels.setdefault(", ".join(words), []).append(point)
    return panels


def _varies(points: Sequence[SweepPoint], axis: str) -> bool:
    return len({getattr(point.setting, axis) for point in points}) > 1
