"""Exceptions of the library.

Every exception derives from `OTLPError` and from a built-in exception type, so that
``except ValueError`` also works.  The messages contain the value, the limit and an alternative.
"""

from __future__ import annotations

import unicodedata

__all__ = [
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
]

LONGEST_MESSAGE = 160
"""Maximum number of characters kept of a message or repr."""


def clean(text: str) -> str:
    r"""Escape control characters and lone surrogates, as in ``\x1b``.

    Use this for foreign text in a message: its control characters must not reach a terminal.

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


def one_line(thing: object) -> str:
    """Return the first line of the message or repr of an object, without control characters.

    The line is truncated after a word at `LONGEST_MESSAGE`, except for this library's errors.
    """
    try:
        text = str(thing) if isinstance(thing, BaseException) else repr(thing)
    except Exception:
        return f"a {type(thing).__name__}"
    first = next(iter(text.splitlines()), "")
    if len(first) > LONGEST_MESSAGE and not isinstance(thing, OTLPError):
        kept = first[: LONGEST_MESSAGE - 4]
        first = (kept[: kept.rfind(" ")] if " " in kept else kept) + " ..."
    return clean(first)


class OTLPError(Exception):
    """Base class of all exceptions of this library.

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
    otlp.errors.InvalidInputError: n must be an integer >= 1, got 0
    """


class InvalidDistributionError(InvalidInputError):
    """An array is not a valid probability distribution.

    Examples
    --------
    >>> import otlp
    >>> otlp.as_distribution([0.5, 0.6])
    Traceback (most recent call last):
    otlp.errors.InvalidDistributionError: distribution must sum to 1 within 1e-06 ...
    """


class TooFewTokensError(InvalidInputError):
    """The number of distinct tokens to draft exceeds the number with positive probability.

    Attributes
    ----------
    most : int
        Number of tokens with positive draft probability.

    Examples
    --------
    >>> import otlp
    >>> otlp.WithoutReplacement([0.5, 0.5, 0.0], n=3)
    Traceback (most recent call last):
    otlp.errors.TooFewTokensError: n must be at most 2, the number of tokens with ...
    """

    def __init__(self, n: int, most: int) -> None:
        super().__init__(n, most)
        self.most = most

    def __str__(self) -> str:
        """Return the message."""
        n, most = self.args
        return (
            f"n must be at most {most}, the number of tokens with positive draft probability, got "
            f"{n}; use a smaller n, a larger top-k, or otlp.IID"
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
    otlp.errors.RowOutOfRangeError: row 10000 is out of range; this capture has 162 ...
    """


class ZeroProbabilityError(InvalidInputError):
    """A drafted tuple has probability zero under the draft scheme.

    Examples
    --------
    >>> import otlp
    >>> plan = otlp.solve(otlp.Problem([0.5, 0.5], otlp.IID([1.0, 0.0], n=2))).plan
    >>> plan.conditional([0, 1])
    Traceback (most recent call last):
    otlp.errors.ZeroProbabilityError: the tuple [0, 1] has probability 0 under IID(vocabu...
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
        """Create an instance without `__init__`, as unpickling in another process does."""
        # MemoryError.__new__ rejects classes whose first base is another class.
        return Exception.__new__(cls, *args)


class UnsupportedProblemError(OTLPError, TypeError):
    """A solver or reduction does not support this problem; the message names one that does.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2))
    >>> otlp.solve(problem, "martingale")
    Traceback (most recent call last):
    otlp.errors.UnsupportedProblemError: martingale: drafts must be i.i.d., got ...
    """


class UnknownSolverError(OTLPError, KeyError):
    """No solver has this name; the message suggests the most similar name.

    Examples
    --------
    >>> import otlp
    >>> otlp.solvers.make_solver("martingal")
    Traceback (most recent call last):
    otlp.errors.UnknownSolverError: no solver is named 'martingal': did you mean ...
    """

    def __str__(self) -> str:
        """Return the message without the quotes that `KeyError` adds."""
        return str(self.args[0]) if self.args else ""


class EngineNotFoundError(OTLPError, ImportError):
    """An optional dependency is not installed; the message contains the install command.

    Examples
    --------
    >>> import otlp
    >>> issubclass(otlp.errors.EngineNotFoundError, ImportError)
    True
    """


class PartNotFoundError(OTLPError, AttributeError):
    """A subpackage accessed as an attribute needs a dependency that is not installed.

    It is an `AttributeError`, so that `hasattr` and tab completion work; the message contains the
    install command.  ``import otlp.batched`` raises `EngineNotFoundError` instead.

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
    """A journal belongs to other work, has the wrong format, or cannot be written.

    Examples
    --------
    >>> from otlp.errors import JournalError, OTLPError
    >>> issubclass(JournalError, OTLPError), issubclass(JournalError, ValueError)
    (True, True)
    """


class OutputError(OTLPError, OSError):
    """An output path cannot be written: it is a device, a pipe, a folder, or standard output.

    Examples
    --------
    >>> import otlp, os
    >>> lp = otlp.export.lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    >>> otlp.export.write_mps(lp, os.devnull)
    Traceback (most recent call last):
    otlp.errors.OutputError: '/dev/null' must be a regular file; name another file
    """


class ExecutorError(OTLPError, ConnectionError):
    """An executor accepts no tasks, runs none, or lost its workers.

    Examples
    --------
    >>> from otlp.errors import OTLPError, ExecutorError
    >>> issubclass(ExecutorError, OTLPError), issubclass(ExecutorError, ConnectionError)
    (True, True)
    """


class ServerError(OTLPError, ConnectionError):
    """An audited server is down, too slow, refuses a request, or does not match its baseline.

    Examples
    --------
    >>> from otlp.errors import OTLPError, ServerError
    >>> issubclass(ServerError, OTLPError), issubclass(ServerError, ConnectionError)
    (True, True)
    """


class TaskError(OTLPError, RuntimeError):
    """A task of a sweep has no result: its worker died, or code outside otlp failed.

    Examples
    --------
    >>> import otlp
    >>> rows = [otlp.Row(0, None, otlp.errors.TaskError("its worker died"))]
    >>> [str(row.error) for row in rows if isinstance(row.error, otlp.errors.TaskError)]
    ['its worker died']
    """
