"""The errors that the library raises: one documented type for each kind of trouble.

Every error derives from `OTLPError`, and from the built-in type that a caller would expect, so
that ``except ValueError`` works too.  A message names the value, the limit and the way out.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

__all__ = [
    "Capability",
    "CaptureError",
    "EngineNotFoundError",
    "InvalidDistributionError",
    "InvalidInputError",
    "JournalError",
    "OTLPError",
    "RowOutOfRangeError",
    "SchedulerError",
    "SizeLimitError",
    "TaskError",
    "TokenOutOfRangeError",
    "TooFewTokensError",
    "UnknownSolverError",
    "UnsupportedProblemError",
    "ZeroProbabilityError",
    "clean",
    "fits",
]


@dataclass(frozen=True)
class Capability:
    """The answer to "can you take this?": yes, or the reason why not.

    Attributes
    ----------
    supported : bool
    reason : str
        If not supported: why, with the value and the limit, and what to use instead.
    """

    supported: bool
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether the problem is supported."""
        return self.supported

    def require(self, who: str) -> None:
        """Raise the reason, in the name of who gave it.

        Raises
        ------
        UnsupportedProblemError
            If not supported.
        """
        if not self.supported:
            raise UnsupportedProblemError(f"{who}: {self.reason}")


def fits(what: str, needed: float, memory_limit: float) -> Capability:
    """Whether so many bytes are within the limit, or the reason why not with the ways out."""
    if needed <= memory_limit:
        return Capability(True)
    needed = min(needed, 1e300)  # a whole number may be too large for a float
    return Capability(
        False,
        f"{what} would need {needed / 1024**2:,.0f} MiB, more than memory_limit = "
        f"{memory_limit / 1024**2:,.0f} MiB: raise it, use a smaller n, cut the draft with top_k, "
        "or choose a solver that lists nothing (martingale for i.i.d. drafts)",
    )


def clean(text: str) -> str:
    r"""Write control characters, and what is no character, as escapes such as ``\x1b``.

    For words of others in a message: they should steer no terminal.
    """
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"
        else c
        for c in text
    )


class OTLPError(Exception):
    """Base class of every error of this library."""


class InvalidInputError(OTLPError, ValueError):
    """An argument has the wrong shape, type or range."""


class InvalidDistributionError(InvalidInputError):
    """An array that should be a probability distribution is not one."""


class TooFewTokensError(InvalidInputError):
    """More different tokens are to be drafted than have positive probability.

    Attributes
    ----------
    most : int
        How many different tokens can be drafted.
    """

    def __init__(self, n: int, most: int) -> None:
        super().__init__(n, most)
        self.most = most

    def __str__(self) -> str:
        """Return the message."""
        n, most = self.args
        return (
            f"n is {n} and the draft has {most} tokens of positive probability: that many "
            "different tokens cannot be drafted; use a smaller n, a larger top-k, or otlp.IID"
        )


class TokenOutOfRangeError(OTLPError, IndexError):
    """A token id lies outside the vocabulary."""


class RowOutOfRangeError(OTLPError, IndexError):
    """A row number lies outside a capture."""


class ZeroProbabilityError(InvalidInputError):
    """A drafted tuple has probability zero under the draft scheme."""


class SizeLimitError(OTLPError, MemoryError):
    """An enumeration would need more memory than its stated limit."""

    def __new__(cls, *args: object) -> SizeLimitError:
        """Make one, as tools that carry errors between processes do, by `__new__` alone."""
        # that of MemoryError refuses a class whose first base is another
        return Exception.__new__(cls, *args)


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


class JournalError(OTLPError, ValueError):
    """A journal is of other work, is no journal, or cannot be written."""


class SchedulerError(OTLPError, ConnectionError):
    """A scheduler of workers cannot be reached, or has no workers that can do the work."""


class TaskError(OTLPError, RuntimeError):
    """A task of a sweep has no result: its worker died, or something else than otlp failed."""
