"""Sequences of problems of captured and synthetic rows, built on access."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, overload

import numpy as np

from otlp.checks import check_n
from otlp.data.capture import Capture
from otlp.data.sampling_cuts import SAMPLING, SamplingCuts
from otlp.data.synthetic import generate
from otlp.distribution import softmax
from otlp.drafts.by_name import SCHEMES, SchemeMaker, make_scheme
from otlp.errors import InvalidInputError
from otlp.parallel.rows import SyntheticRows, row_numbers
from otlp.problem import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class RowProblems(Sequence[Problem]):
    """A sequence with one problem per row, built on access.

    A slice is a sequence of the same type.

    Parameters
    ----------
    n : int
        Number of drafts.
    drafts : str or callable
        "iid", "without-replacement", "greedy", "hub" or "independent" (see
        `otlp.drafts.by_name.SCHEMES`), or a function of q and n that returns a draft scheme.
    temperature, draft_temperature, top_k, top_p
        See `Capture.distributions`.
    sampling_top_k, sampling_top_p, sampling_min_p, whole_draft
        See `Capture.distributions`.

    Raises
    ------
    InvalidInputError
        If an argument is out of range.
    """

    n: int
    drafts: str | SchemeMaker = "iid"
    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    sampling_top_k: int | None = None
    sampling_top_p: float | None = None
    sampling_min_p: float | None = None
    whole_draft: bool = False

    def __post_init__(self) -> None:
        """Check the arguments that do not depend on a row."""
        check_n(self.n)
        if not (callable(self.drafts) or (isinstance(self.drafts, str) and self.drafts in SCHEMES)):
            raise InvalidInputError(
                f"drafts must be one of {', '.join(SCHEMES)}, or a function of q and n that "
                f"returns a draft scheme, got {self.drafts!r}"
            )
        one = np.ones(1)
        for temperature in (self.temperature, self.draft_temperature):
            softmax(one, 1.0 if temperature is None else temperature)
        SamplingCuts(self.top_k, self.top_p)
        SamplingCuts(self.sampling_top_k, self.sampling_top_p, self.sampling_min_p)

    @property
    @abstractmethod
    def numbers(self) -> Sequence[int]:
        """Numbers of the rows, in order."""

    @property
    def by_reference(self) -> bool:
        """Whether a pickle contains references to the rows instead of the rows."""
        return True

    @abstractmethod
    def _capture(self, number: int) -> tuple[Capture, int]:
        """Return a capture that contains the row, and the index of the row in the capture."""

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[Problem]:
        """Iterate over the problems."""
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Problem | Self:
        """Build a problem for an integer, or return a sequence for a slice."""
        if isinstance(place, slice):
            part = object.__new__(type(self))
            vars(part).update(vars(self), rows=self.numbers[place])  # No check is needed.
            return part
        capture, row = self._capture(self.numbers[place])
        names = ("temperature", "draft_temperature", "top_k", "top_p", *SAMPLING, "whole_draft")
        cuts = {name: getattr(self, name) for name in names}
        target, draft = capture.distributions(row, **cuts)
        return Problem(target, make_scheme(self.drafts, draft, self.n))


@dataclass(frozen=True, eq=False)
class CaptureProblems(RowProblems):
    """Problems of the rows of a capture.

    Parameters
    ----------
    capture : Capture
    rows : sequence of int, optional
        Row numbers, such as ``range(100, 200)``; default all rows.
    n, drafts, temperature, ...
        See `RowProblems`.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type or is out of range.
    RowOutOfRangeError
        If the capture does not have a row.

    Notes
    -----
    For a capture in memory, a pickle contains only the selected rows.

    Examples
    --------
    >>> import otlp
    >>> problems = otlp.CaptureProblems(otlp.captures.builtin(), n=4, top_k=50)
    >>> problems[0].n, len(problems[10:20])
    (4, 10)
    """

    capture: Capture
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check all arguments."""
        super().__post_init__()
        object.__setattr__(self, "rows", row_numbers(self.capture, self.rows))

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the rows in the capture, in order."""
        assert self.rows is not None
        return self.rows

    @property
    def by_reference(self) -> bool:
        """Whether the capture is in files."""
        return self.capture.in_files

    def _capture(self, number: int) -> tuple[Capture, int]:
        return self.capture, number

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with only the selected rows."""
        numbers = np.asarray(self.numbers, dtype=np.int64)
        if not self.by_reference:
            none = np.empty(0, dtype=np.int64)
            at: Any = numbers
            if isinstance(self.rows, range) and self.rows.step == 1:
                at = slice(self.rows.start, self.rows.stop)  # A slice makes no copy.
            capture = replace(
                self.capture,
                target_logits=self.capture.target_logits[at],
                draft_logits=self.capture.draft_logits[at],
                contexts=(),
                positions=none,
                next_tokens=none,
            )
            rows: Sequence[int] = range(numbers.size)
        else:  # Rows in files; a slice does not read them.
            first = int(numbers.min(initial=len(self.capture)))
            capture = self.capture[first : int(numbers.max(initial=first)) + 1]
            rows = (numbers - first).tolist()
        return {**vars(self), "capture": capture, "rows": rows}


@dataclass(frozen=True, eq=False)
class SyntheticProblems(RowProblems):
    """Problems of synthetic rows, generated on access.

    Parameters
    ----------
    rows : int or range
        Number of rows, or a range of row numbers.
    vocab_size : int
        Vocabulary size V, at least 1,000.
    seed : int
        Random seed, default 0.  A row depends only on the seed and its number.
    n, drafts, temperature, ...
        See `RowProblems`.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type or is out of range.

    Notes
    -----
    Row i is that of `otlp.synthetic.generate`, which is slower than most solvers: about 2 ms at
    V = 4,096 and 0.1 s at V = 128,000.

    Examples
    --------
    >>> import otlp
    >>> problems = otlp.SyntheticProblems(1_000_000, 4096, n=4)
    >>> len(problems), problems[999_999].vocab_size
    (1000000, 4096)
    """

    rows: int | range
    vocab_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Check all arguments."""
        super().__post_init__()
        synthetic = SyntheticRows(self.rows, self.vocab_size, self.seed)
        object.__setattr__(self, "rows", synthetic.numbers)

    @property
    def numbers(self) -> range:
        """Numbers of the rows, in order."""
        assert isinstance(self.rows, range)
        return self.rows

    def _capture(self, number: int) -> tuple[Capture, int]:
        return generate(1, self.vocab_size, seed=self.seed, first=number), 0
