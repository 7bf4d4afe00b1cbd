"""The rows of a capture that a command uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from otlp.cli.capture_file import CaptureFile
from otlp.cli.output import note
from otlp.data.capture import Capture
from otlp.data.spread_rows import choice_of_rows, spread_rows
from otlp.drafts.by_name import make_scheme
from otlp.problem import Problem


@dataclass(frozen=True)
class ChosenRows:
    """A capture, its path (None: built-in), and row numbers."""

    path: str | None
    capture: Capture
    numbers: Sequence[int]

    @classmethod
    def spread(cls, file: CaptureFile, count: int | None = None) -> ChosenRows:
        """Choose `count` rows, sampled evenly from a capture; by default, all rows."""
        capture = file.open()
        return cls(file.path, capture, spread_rows(len(capture), count or len(capture)))

    @property
    def choice(self) -> str:
        """Description of the choice of rows."""
        return choice_of_rows(len(self.capture), len(self.numbers))

    @property
    def title(self) -> str:
        """Models and choice of rows."""
        synthetic = " (synthetic)" if self.capture.synthetic else ""
        models = f"{self.capture.target_model} / {self.capture.draft_model}{synthetic}"
        return f"{models}, {self.choice}"

    @property
    def source(self) -> dict[str, Any]:
        """Source of the rows, for `write_result`."""
        return {
            "capture": self.path or "built-in",
            "target": self.capture.target_model,
            "draft": self.capture.draft_model,
            "synthetic": self.capture.synthetic,
        }

    @property
    def chosen(self) -> dict[str, Any]:
        """Source and numbers of the rows, for `write_result`."""
        return {**self.source, "rows": list(self.numbers), "row_choice": self.choice}

    def problem(self, row: int, n: int, *, scheme: str, **options: Any) -> Problem:
        """Build the OTLP of one row; `options` are those of `Capture.distributions`."""
        target, draft = self.capture.distributions(row, **options)
        return Problem(target, make_scheme(scheme, draft, n))

    def truncations(self, **options: Any) -> list[float]:
        """Return `Capture.truncation` of each row; `options` may contain a scheme."""
        options.pop("scheme", None)
        return [self.capture.truncation(row, **options) for row in self.numbers]

    def print_truncation(self, errors: Sequence[float]) -> None:
        """Print the truncation errors of a `TopCapture`; print nothing if rows are complete."""
        if self.capture.kept is not None and errors:
            bound = f"{max(errors):.2g}"
            if len(errors) > 1:
                bound = f"{fmean(errors):.2g} on average, and {bound} in the worst row"
            note(
                f"The capture stores the {self.capture.kept:,} most likely tokens of each row, and "
                f"drafts are limited to them. With all tokens the optimum could be higher by at "
                f"most {bound}."
            )
