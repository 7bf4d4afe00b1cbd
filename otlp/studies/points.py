"""A rule at a setting over all rows: its mean acceptance, with its interval.

Passages are the independent units of the interval: rows of one passage are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, mean_over_units

PRECISION = 0.002
"""Half of the interval of a drawn mean acceptance that is enough."""

LOSSY = "NOT LOSSLESS"
"""What the reason of a rule begins with that is measured, and should not be used."""

AXES = {"n": "n, number of drafts", "temperature": "temperature", "top_k": "k, the draft's top k"}
"""What a curve can go over."""


@dataclass(frozen=True)
class SweepSetting:
    """How tokens are drafted, and from which distributions.

    Attributes
    ----------
    scheme : str
        Name in `otlp.drafts.by_name.SCHEMES`.
    n : int
        Number of drafts.
    temperature : float
        Of both models, or of the target if the grid fixes that of the draft.
    top_k : int or None
        How many tokens of the draft are kept; None: all.
    """

    scheme: str
    n: int
    temperature: float
    top_k: int | None


@dataclass(frozen=True)
class SweepPoint:
    """A rule at a setting, over all rows.

    Attributes
    ----------
    setting : SweepSetting
    rule : str
        A solver's name, or `OPTIMUM` or `BOUND` of `otlp.studies.compare`.
    acceptance : Estimate
        Mean over the rows on which the rule applied, with its 95% interval, which is NaN
        where these are of one passage; NaN if there is none.
    rows : int
        How many these are.
    reason : str
        The first reason of a row that has one; empty if none has.
    partial : bool
        Whether there are rows on which the rule did not apply, and others on which it did.
    sampling_error : float
        Half of the 95% interval of the mean on these very rows, where it was drawn; 0 if exact.
    values, passages : ndarray, shape (rows of the source,)
        Acceptance on each row, NaN where the rule did not apply, and the passage of each.
    """

    setting: SweepSetting
    rule: str
    acceptance: Estimate
    rows: int
    reason: str
    partial: bool
    sampling_error: float = 0.0
    values: FloatArray = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    passages: IntArray = field(
        default_factory=lambda: np.empty(0, dtype=np.int64), repr=False, compare=False
    )

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
        """Average over rows; NaN where the rule did not apply."""
        found, size = mean_over_units(acceptances, passages)
        partial = 0 < size < acceptances.size
        given = reason, partial, sampling_error, acceptances, passages
        return cls(setting, rule, found, size, *given)

    def below(self, best: SweepPoint) -> Estimate:
        """How far it is below another point: the mean over rows of both, paired by passages."""
        return mean_over_units(best.values - self.values, self.passages)[0]

    @property
    def error(self) -> float:
        """Half of the interval over passages, else of that of what was drawn; NaN without both."""
        over = (self.acceptance.high - self.acceptance.low) / 2.0
        return self.sampling_error or math.nan if math.isnan(over) else over

    def record(self, best: SweepPoint) -> dict[str, Any]:
        """Everything about the point and the optimum of its setting, as JSON takes it."""
        found = asdict(self) | {"acceptance": self.acceptance.record()}
        found["below_optimum"] = self.below(best).record()
        del found["values"], found["passages"]
        return {"row_count": found.pop("rows"), **found.pop("setting"), **found}


def varying(points: Sequence[SweepPoint]) -> str:
    """The first of `AXES` that has several values; n if none has."""
    return next((axis for axis in AXES if _varies(points, axis)), "n")


def by_panel(points: Sequence[SweepPoint], over: str) -> dict[str, list[SweepPoint]]:
    """Group the points that differ in `over` and the rule only, by words for what else varies.

    Raises
    ------
    InvalidInputError
        If there are no points, or `over` is none of `AXES`.
    """
    if not points or over not in AXES:
        raise InvalidInputError(
            f"there are {len(points)} points to go over {over!r}: it needs some, and one of "
            + ", ".join(AXES)
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
