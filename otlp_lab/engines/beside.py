"""What is judged beside an engine's verifier, by G-tests of its own drafts or texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from otlp.auditing.gtest import GTest
from otlp.auditing.report import Verdict


@dataclass(frozen=True)
class Beside(ABC):
    """Tests of an engine's own drafts or texts, by settings; subclasses say of what.

    Attributes
    ----------
    tests : mapping of str to GTest
    """

    tests: Mapping[str, GTest]

    field: ClassVar[str]
    """Its name in JSON."""

    unit: ClassVar[str]
    """What is counted."""

    wrong: ClassVar[Verdict]
    """The verdict where a test rejects."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """What was tested, and against which law, with a place for the verb."""

    @property
    def passed(self) -> bool:
        """Whether no test rejects."""
        return not any(test.rejected for test in self.tests.values())

    @property
    def verdict(self) -> Verdict:
        """`NOT_REJECTED`, or `wrong`."""
        return Verdict.NOT_REJECTED if self.passed else self.wrong

    def __str__(self) -> str:
        """Say in a line for each test what was found."""
        verb = "follow" if self.passed else f"do NOT follow ({self.verdict.name})"
        lines = [self.headline.format(verb=verb)]
        for name, test in self.tests.items():
            lines.append(
                f"  {name}: {test}; {test.samples:,} {self.unit} detect a total variation of "
                f"{test.detectable:.2g}{' REJECTED' if test.rejected else ''}"
            )
        return "\n".join(lines)
