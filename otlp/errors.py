"""The errors that the library raises: one documented type for each kind of trouble.

Every error derives from `OTLPError`, and from the built-in type that a caller would expect, so
that ``except ValueError`` works too.  A message names the value, the limit and the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otlp.solution import Solution

__all__ = [
    "CaptureError",
    "EngineNotFoundError",
    "InvalidDistributionError",
    "InvalidInputError",
    "OTLPError",
    "RowOutOfRangeError",
    "SizeLimitError",
    "SolveError",
    "TokenOutOfRangeError",
    "UnknownSolverError",
    "UnsupportedProblemError",
    "ZeroProbabilityError",
]


class OTLPError(Exception):
    """Base class of every error of this library."""


class InvalidInputError(OTLPError, ValueError):
    """An argument has the wrong shape, type or range."""


class InvalidDistributionError(InvalidInputError):
    """An array that should be a probability distribution is not one."""


class TokenOutOfRangeError(OTLPError, IndexError):
    """A token id lies outside the vocabulary."""


class RowOutOfRangeError(OTLPError, IndexError):
    """A row number lies outside a capture."""


class ZeroProbabilityError(InvalidInputError):
    """A drafted tuple has probability zero under the draft scheme."""


class SizeLimitError(OTLPError, MemoryError):
    """An enumeration would need more memory than its stated limit."""


class UnsupportedProblemError(OTLPError, TypeError):
    """A solver or reduction does not cover this problem; the message says why and what does."""


class UnknownSolverError(OTLPError, KeyError):
    """No solver has this name; the message suggests the nearest one."""

    def __str__(self) -> str:
        """Return the message without the quotes that `KeyError` puts around it."""
        return str(self.args[0]) if self.args else ""


class EngineNotFoundError(OTLPError, ImportError):
    """An optional part is not installed; the message names the install command."""


class CaptureError(OTLPError, ValueError):
    """A capture file cannot be read, is truncated, or does not have the expected layout."""


class SolveError(OTLPError, RuntimeError):
    """A solver stopped without a plan that solves the problem.

    Attributes
    ----------
    solution : Solution
        What the solver returned: `solution.status` says why it stopped.
    """

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        super().__init__(f"{solution.solver}: {solution.status.value} {solution.message}".rstrip())
