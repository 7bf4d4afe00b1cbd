"""G-tests of an engine's own drafts or texts, in addition to the audit of its verifier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from otlp.auditing.gtest import GTest
from otlp.auditing.report import Verdict


@dataclass(frozen=True)
class SampleTests(ABC):
    """Base class of tests of an engine's own drafts or texts, by settings.

    Attributes
    ----------
    tests : mapping of str to GTest
    """

    tests: Mapping[str, GTest]

    field: ClassVar[str]
    """Name of the tests in JSON."""

    unit: ClassVar[str]
    """Name of the samples in the plural."""

    wrong: ClassVar[Verdict]
    """Verdict if a test rejects."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """Samples and expected distribution, with a placeholder for the verb."""

    @property
    def passed(self) -> bool:
        """Whether no test rejects."""
        return not any(test.rejected for test in self.tests.values())

    @property
    def verdict(self) -> Verdict:
        """`NOT_REJECTED`, or `wrong`."""
        return Verdict.NOT_REJECTED if self.passed else self.wrong

    def __str__(self) -> str:
        """Return the headline and one line per test."""
        verb = "follow" if self.passed else f"do NOT follow ({self.verdict.name})"
        lines = [self.headline.format(verb=verb)]
        for name, test in self.tests.items():
            lines.append(
                f"  {name}: {test}; {test.samples:,} {self.unit} detect a total variation of "
                f"{test.detectable:.2g}{' REJECTED' if test.rejected else ''}"
            )
        return "\n".join(lines)
