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
    "ExecutorError",
    "InvalidDistributionError",
    "InvalidInputError",
    "JournalError",
    "OTLPError",
    "OutputError",
    "PartNotFoundError",
    "RowOutOfRangeError",
    "ServerError",
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

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2)
    >>> answer = otlp.solvers.Martingale().supports(otlp.Problem([0.1, 0.6, 0.3], drafts))
    >>> bool(answer), "i.i.d." in answer.reason
    (False, True)
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
    """Whether so many bytes are within the limit, or the reason why not with the ways out.

    Examples
    --------
    >>> from otlp.errors import fits
    >>> bool(fits("the list of tuples", 1024**2, 2 * 1024**2))
    True
    >>> fits("the list of tuples", 3 * 1024**2, 2 * 1024**2).reason[:49]
    'the list of tuples would need 3 MiB, more than me'
    """
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

    Examples
    --------
    >>> from otlp.errors import clean
    >>> print(clean("red: " + chr(27) + "[31m"))
    red: \x1b[31m
    """
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"
        else c
        for c in text
    )


class OTLPError(Exception):
    """Base class of every error of this library.

    Examples
    --------
    >>> import otlp
    >>> issubclass(otlp.errors.InvalidInputError, otlp.errors.OTLPError)
    True
    """


class InvalidInputError(OTLPError, ValueError):
    """An argument has the wrong shape, type or range.

    Examples
    --------
    >>> import otlp
    >>> otlp.IID([0.5, 0.5], n=0)
    Traceback (most recent call last):
    otlp.errors.InvalidInputError: n is 0: it must be a whole number >= 1
    """


class InvalidDistributionError(InvalidInputError):
    """An array that should be a probability distribution is not one.

    Examples
    --------
    >>> import otlp
    >>> otlp.as_distribution([0.5, 0.6])
    Traceback (most recent call last):
    otlp.errors.InvalidDistributionError: distribution sums to 1.1, which is off 1 by ...
    """


class TooFewTokensError(InvalidInputError):
    """More different tokens are to be drafted than have positive probability.

    Attributes
    ----------
    most : int
        How many different tokens can be drafted.

    Examples
    --------
    >>> import otlp
    >>> otlp.WithoutReplacement([0.5, 0.5, 0.0], n=3)
    Traceback (most recent call last):
    otlp.errors.TooFewTokensError: n is 3 and the draft has 2 tokens of positive ...
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
    """A token id lies outside the vocabulary.

    Examples
    --------
    >>> import otlp
    >>> plan = otlp.solve(otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], n=2))).plan
    >>> plan.conditional([0, 2])
    Traceback (most recent call last):
    otlp.errors.TokenOutOfRangeError: token id 2 lies outside the vocabulary [0, 2)
    """


class RowOutOfRangeError(OTLPError, IndexError):
    """A row number lies outside a capture.

    Examples
    --------
    >>> from otlp import captures
    >>> captures.builtin()[10_000]
    Traceback (most recent call last):
    otlp.errors.RowOutOfRangeError: row 10000 is out of range: this capture has 162 ...
    """


class ZeroProbabilityError(InvalidInputError):
    """A drafted tuple has probability zero under the draft scheme.

    Examples
    --------
    >>> import otlp
    >>> plan = otlp.solve(otlp.Problem([0.5, 0.5], otlp.IID([1.0, 0.0], n=2))).plan
    >>> plan.conditional([0, 1])
    Traceback (most recent call last):
    otlp.errors.ZeroProbabilityError: the tuple [0, 1] has probability 0 under IID(V=2, ...
    """


class SizeLimitError(OTLPError, MemoryError):
    """An enumeration would need more memory than its stated limit.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> big = np.full(1000, 1e-3)
    >>> otlp.solve(otlp.Problem(big, otlp.IID(big, n=2))).plan.table()
    Traceback (most recent call last):
    otlp.errors.SizeLimitError: the table of 1,000,000 tuples by 1,000 tokens would ...
    """

    def __new__(cls, *args: object) -> SizeLimitError:
        """Make one, as tools that carry errors between processes do, by `__new__` alone."""
        # that of MemoryError refuses a class whose first base is another
        return Exception.__new__(cls, *args)


class UnsupportedProblemError(OTLPError, TypeError):
    """A solver or reduction does not cover this problem; the message says why and what does.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2))
    >>> otlp.solve(problem, "martingale")
    Traceback (most recent call last):
    otlp.errors.UnsupportedProblemError: martingale: the drafts are ...
    """


class UnknownSolverError(OTLPError, KeyError):
    """No solver has this name; the message suggests the nearest one.

    Examples
    --------
    >>> import otlp
    >>> otlp.solvers.make_solver("martingal")
    Traceback (most recent call last):
    otlp.errors.UnknownSolverError: no solver is named 'martingal': did you mean ...
    """

    def __str__(self) -> str:
        """Return the message without the quotes that `KeyError` puts around it."""
        return str(self.args[0]) if self.args else ""


class EngineNotFoundError(OTLPError, ImportError):
    """An optional part is not installed; the message names the install command.

    Examples
    --------
    >>> import otlp
    >>> issubclass(otlp.errors.EngineNotFoundError, ImportError)
    True
    """


class PartNotFoundError(OTLPError, AttributeError):
    """A package of the library, asked for as an attribute, needs one that is not installed.

    An `AttributeError`, so that `hasattr` and completion go on; the message names the install
    command.  ``import otlp.batched`` raises `EngineNotFoundError`.

    Examples
    --------
    >>> import otlp
    >>> issubclass(otlp.errors.PartNotFoundError, AttributeError)
    True
    """


class CaptureError(OTLPError, ValueError):
    """A capture file cannot be read, is truncated, or does not have the expected layout.

    Examples
    --------
    >>> from otlp.errors import CaptureError, OTLPError
    >>> issubclass(CaptureError, OTLPError), issubclass(CaptureError, ValueError)
    (True, True)
    """


class JournalError(OTLPError, ValueError):
    """A journal is of other work, is no journal, or cannot be written.

    Examples
    --------
    >>> from otlp.errors import JournalError, OTLPError
    >>> issubclass(JournalError, OTLPError), issubclass(JournalError, ValueError)
    (True, True)
    """


class OutputError(OTLPError, OSError):
    """A file cannot be written there: it is a device, a pipe, a folder, or what is printed to.

    Examples
    --------
    >>> import otlp, os
    >>> lp = otlp.export.lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    >>> otlp.export.write_mps(lp, os.devnull)
    Traceback (most recent call last):
    otlp.errors.OutputError: '/dev/null' is no ordinary file: name another
    """


class ExecutorError(OTLPError, ConnectionError):
    """An executor takes no tasks, does none, or lost the workers that did them.

    Examples
    --------
    >>> from otlp.errors import OTLPError, ExecutorError
    >>> issubclass(ExecutorError, OTLPError), issubclass(ExecutorError, ConnectionError)
    (True, True)
    """


class ServerError(OTLPError, ConnectionError):
    """A server that is audited is gone, slow, refuses, or is no pair with its baseline.

    Examples
    --------
    >>> from otlp.errors import OTLPError, ServerError
    >>> issubclass(ServerError, OTLPError), issubclass(ServerError, ConnectionError)
    (True, True)
    """


class TaskError(OTLPError, RuntimeError):
    """A task of a sweep has no result: its worker died, or something else than otlp failed.

    Examples
    --------
    >>> import otlp
    >>> rows = [otlp.Row(0, None, otlp.errors.TaskError("its worker died"))]
    >>> [str(row.error) for row in rows if isinstance(row.error, otlp.errors.TaskError)]
    ['its worker died']
    """
