"""Captures: pairs of target and draft logits over one vocabulary, with labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import overload

import numpy as np

from otlp.checks import own_float_errors, precision, whole_number
from otlp.data.columns import (
    LazyArray,
    LogitArray,
    as_logits,
    as_rows,
    check_logits,
    check_next_tokens,
    row_integers,
)
from otlp.data.sampling_cuts import SamplingCuts
from otlp.data.stored_rows import StoredRows, StoredTexts
from otlp.distribution import FloatArray, IntArray, ReadOnly, softmax
from otlp.errors import InvalidDistributionError, InvalidInputError, RowOutOfRangeError

LABELS = ("target_model", "draft_model", "tokenizer", "source", "note")
COLUMNS = ("target_logits", "draft_logits", "contexts", "positions", "next_tokens")


def _unknown() -> IntArray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CaptureRow:
    """One decoding step of a capture.

    Attributes
    ----------
    target_logits, draft_logits : ndarray, shape (V,)
        Logits at temperature 1.
    context : str
        Text before this step; empty if unknown.
    position : int
        Number of tokens of the passage before this step; -1 if unknown.
    next_token : int
        Next token of the text; -1 if unknown.

    Examples
    --------
    >>> from otlp import captures
    >>> row = captures.builtin()[3]
    >>> row.target_logits.shape, row.position >= 0
    ((49153,), True)
    """

    target_logits: LogitArray
    draft_logits: LogitArray
    context: str
    position: int
    next_token: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Capture(ReadOnly):
    """Pairs of target and draft logits over one vocabulary, with labels.

    ``len(capture)`` is the number of rows, ``capture[3]`` is a `CaptureRow`, ``capture[10:20]``
    is a `Capture` of these rows, and iteration is over the rows.

    The arrays are in memory, or in files whose rows are read on access.  Arrays in files are not
    NumPy arrays; they have a shape, a dtype, rows and slices, and ``numpy.asarray`` reads them.  A
    capture in files uses no memory for its rows, and its pickle contains paths.

    Parameters
    ----------
    target_logits, draft_logits : ndarray or torch.Tensor, shape (rows, V)
        Logits at temperature 1, in natural units (nats), in float16, bfloat16, float32 or float64,
        both in the same precision.  Minus infinity masks a token.  Tensors may be on any device and
        may require a gradient, which is dropped.
    target_model, draft_model : str
        Names of the models.
    tokenizer : str
        Name of the tokenizer that defines the V token ids.
    source : str
        Text that the rows are from.
    synthetic : bool
        True if the logits are synthetic, not computed by language models.
    note : str, optional
        Additional information for readers.
    contexts : tuple of str, length rows, optional
        Text before each row; by default unknown.
    positions : ndarray of int64, shape (rows,), optional
        Number of tokens of the passage before each row; -1 (default) if unknown.
    next_tokens : ndarray of int64, shape (rows,), optional
        Next token of the text; -1 (default) if unknown.
    dtype : str, optional
        Precision of the logits in memory and in files: ``"float16"``, ``"bfloat16"``, ``"float32"``
        or ``"float64"``; by default that of the arrays.  NumPy has no bfloat16, so bfloat16 logits
        are float32 arrays whose values are representable in bfloat16.

    Raises
    ------
    InvalidInputError
        If shapes or precisions differ; if a row has a NaN or plus infinity, or only minus infinity
        (the message names the row); or if `dtype` is not the precision of the arrays.
    TokenOutOfRangeError
        If a next token is not in [-1, V).

    Notes
    -----
    The arrays are read-only and are not copied if their type allows it.  Validation is one pass
    over the logits, O(rows V); rows in files are validated one by one when they are read.

    Examples
    --------
    >>> from otlp import captures
    >>> capture = captures.builtin()
    >>> target, draft = capture.distributions(row=3, temperature=0.8, top_k=50)
    >>> target.shape, int((draft > 0).sum()), capture[10:20].vocab_size
    ((49153,), 50, 49153)
    """

    target_logits: LogitArray | LazyArray
    draft_logits: LogitArray | LazyArray
    target_model: str
    draft_model: str
    tokenizer: str
    source: str
    synthetic: bool
    note: str = ""
    contexts: tuple[str, ...] | StoredTexts = ()
    positions: IntArray | StoredRows = field(default_factory=_unknown)
    next_tokens: IntArray | StoredRows = field(default_factory=_unknown)
    dtype: str = ""

    def __post_init__(self) -> None:
        target = as_rows(self.target_logits, "target_logits")
        draft = as_rows(self.draft_logits, "draft_logits")
        # `as_rows` has converted bfloat16 tensors to float32 arrays.
        given = (
            precision(self.target_logits) or target.dtype.name,
            precision(self.draft_logits) or draft.dtype.name,
        )
        if len(target.shape) != 2 or target.shape != draft.shape or target.shape[1] == 0:
            raise InvalidInputError(
                "target_logits and draft_logits must have the same shape (rows, V) with V at "
                f"least 1, got {target.shape} and {draft.shape}"
            )
        rows, vocab_size = target.shape
        if given[0] != given[1]:
            raise InvalidInputError(
                "target_logits and draft_logits must have the same precision, got "
                f"{given[0]} and {given[1]}; convert one of them"
            )
        dtype = self.dtype or given[0]
        contexts = self.contexts
        if not isinstance(contexts, StoredTexts):
            contexts = tuple(contexts) or ("",) * rows
        if len(contexts) != rows:
            raise InvalidInputError(
                f"contexts must have one entry for each of {rows} rows or be left out, got "
                f"{len(contexts)} entries"
            )
        next_tokens = row_integers(self.next_tokens, rows, "next_tokens")
        if isinstance(next_tokens, np.ndarray):
            check_next_tokens(next_tokens, vocab_size, "next_tokens[{}]".format)
        values = {
            "target_logits": as_logits(target, dtype, "target_logits"),
            "draft_logits": as_logits(draft, dtype, "draft_logits"),
            "contexts": contexts,
            "positions": row_integers(self.positions, rows, "positions"),
            "next_tokens": next_tokens,
            "dtype": dtype,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return int(self.target_logits.shape[1])

    @property
    def model_vocab_size(self) -> int:
        """Vocabulary size of the models: V without the rest token of a `TopCapture`."""
        return self.vocab_size - (self.kept is not None)

    @property
    def passages(self) -> IntArray:
        """Passage number of each row, shape (rows,).

        A row is in the passage of the previous row if its position is larger and its context starts
        with the previous context, or if its position is the next one and a context is unknown.  A
        row of unknown position is a passage of its own.
        """
        positions = np.asarray(self.positions)
        apart = np.diff(positions, prepend=np.inf)
        begins = (apart < 1) | (positions <= 0)
        begins[1:] |= positions[:-1] < 0
        for row in np.flatnonzero(~begins):
            # Strip an incomplete character, which is different in the longer context.
            before, context = self.contexts[int(row) - 1].rstrip("\ufffd"), self.contexts[int(row)]
            unknown = not before or not context
            begins[row] = apart[row] > 1 if unknown else not context.startswith(before)
        found: IntArray = begins.cumsum()
        return found

    def __repr__(self) -> str:
        """Return the size, the precision and the models of the capture."""
        kind = "synthetic" if self.synthetic else "real"
        return (
            f"{type(self).__name__}({len(self)} {kind} rows, V = {self.model_vocab_size:,}, "
            f"{self.dtype}, target {self.target_model!r}, draft {self.draft_model!r})"
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.target_logits.shape[0])

    def __iter__(self) -> Iterator[CaptureRow]:
        """Iterate over the rows."""
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, rows: int) -> CaptureRow: ...
    @overload
    def __getitem__(self, rows: slice) -> Capture: ...
    def __getitem__(self, rows: int | slice) -> CaptureRow | Capture:
        """Return a row for an integer, or a capture for a slice."""
        if isinstance(rows, slice):
            return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})
        self._check_row(rows)
        token = int(self.next_tokens[rows])
        if isinstance(self.next_tokens, StoredRows):
            name = f"next_tokens of {self._place(rows)}"
            check_next_tokens(np.array([token]), self.vocab_size, lambda _: name)
        return CaptureRow(
            self._logits("target_logits", rows),
            self._logits("draft_logits", rows),
            self.contexts[rows],
            int(self.positions[rows]),
            token,
        )

    @own_float_errors
    def distributions(
        self,
        row: int,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        sampling_top_k: int | None = None,
        sampling_top_p: float | None = None,
        sampling_min_p: float | None = None,
        whole_draft: bool = False,
    ) -> tuple[FloatArray, FloatArray]:
        """Compute the target and the draft distribution of one row.

        Parameters
        ----------
        row : int
            Index of the row; negative indices count from the end.
        temperature : float
            Temperature of the target, and of the draft unless `draft_temperature` is passed;
            greater than 0.
        draft_temperature : float, optional
            Temperature of the draft, default `temperature`.
        top_k : int, optional
            Number of most likely tokens of the draft to keep; ties go to the lowest token id.  The
            target is not cut.
        top_p : float, optional
            Keep the smallest set of most likely tokens of the draft whose mass reaches `top_p`;
            ties go to the lowest token id.  With `top_k`, the mass is that after the top-k cut.
        sampling_top_k, sampling_top_p, sampling_min_p : optional
            Cuts of both models in serving: top-k, then top-p, then min-p.  The cuts `top_k` and
            `top_p` of the draft follow.  See `otlp.data.sampling_cuts.SamplingCuts`.
        whole_draft : bool
            Whether to apply the `sampling_` cuts to the target only.

        Returns
        -------
        p, q : ndarray, shape (V,), float64
            Target and draft probabilities, each summing to one.  For a `TopCapture` they are over
            V + 1 tokens.  Its draft is limited to the stored tokens before all other cuts and is
            exact up to the rounding of the logs.  Its target is exact at temperature 1; at other
            temperatures no entry except the last (the rest) is too large.

        Raises
        ------
        RowOutOfRangeError
            If `row` is out of range.
        InvalidInputError
            If a temperature is not positive and finite, k is below 1, or `top_p` is not in (0, 1];
            if a row read from a file is invalid, such as a NaN; or if k exceeds the number of
            tokens stored in a `TopCapture`.
        CaptureError
            If the row is in a file that has changed or does not exist any more.

        Notes
        -----
        The softmax is computed in float64 for every precision of the logits.  O(V), and O(V log V)
        with `top_k` or `top_p`.
        """
        self._check_row(row)
        own = temperature if draft_temperature is None else draft_temperature
        served = SamplingCuts(sampling_top_k, sampling_top_p, sampling_min_p)
        both = SamplingCuts() if whole_draft else served
        p, q, _ = self._cut_row(row, temperature, own, served, (both, SamplingCuts(top_k, top_p)))
        return p, q

    @property
    def in_files(self) -> bool:
        """Whether rows are read from files on access."""
        return not isinstance(self.target_logits, np.ndarray)

    @property
    def kept(self) -> int | None:
        """Number of most likely tokens stored per row; None if all tokens are stored."""
        return None

    def check_top_k(self, top_k: int | None, name: str = "top_k") -> None:
        """Check a top-k size against the number of stored tokens, before any row is used.

        Raises
        ------
        InvalidInputError
            If `top_k` is not an integer of at least 1, or exceeds the number of stored tokens.
        """
        if top_k is not None and whole_number(top_k, "top-k size") > (self.kept or np.inf):
            raise InvalidInputError(
                f"{name} must be at most {self.kept}, the number of tokens per row in this "
                f"capture, got {top_k}; lower it, or use a capture of whole rows"
            )

    @own_float_errors
    def truncation(
        self,
        row: int,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        sampling_top_k: int | None = None,
        sampling_top_p: float | None = None,
        sampling_min_p: float | None = None,
        whole_draft: bool = False,
    ) -> float:
        """Return a bound on the acceptance lost because only the top tokens are stored.

        The optimal acceptance of the whole row is at least that of `distributions`, and larger by
        at most this number, for every draft scheme; see `TopCapture`.

        Parameters
        ----------
        row, temperature, draft_temperature, top_k, top_p
            As in `distributions`.
        sampling_top_k, sampling_top_p, sampling_min_p, whole_draft
            As in `distributions`.

        Returns
        -------
        float
            Bound in [0, 1], up to the rounding of the logs, about 1e-6 / T; 0 for a capture of
            whole rows.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError, CaptureError
            As in `distributions`.
        """
        self._check_row(row)
        own = temperature if draft_temperature is None else draft_temperature
        if self.kept is None:
            return 0.0
        served = SamplingCuts(sampling_top_k, sampling_top_p, sampling_min_p)
        both = SamplingCuts() if whole_draft else served
        return self._cut_row(row, temperature, own, served, (both, SamplingCuts(top_k, top_p)))[2]

    def _cut_row(
        self,
        row: int,
        temperature: float,
        draft_temperature: float,
        served: SamplingCuts,
        draft_cuts: tuple[SamplingCuts, SamplingCuts],
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return target, draft (at `draft_temperature`) and the bound of `truncation`."""
        p = self._softmax("target_logits", row, temperature)
        q = self._softmax("draft_logits", row, draft_temperature)
        for cuts in draft_cuts:
            q = cuts.cut(q)
        return served.cut(p), q, 0.0

    def _logits(self, name: str, row: int) -> LogitArray:
        logits = getattr(self, name)
        found: LogitArray = logits[row]
        if not isinstance(logits, np.ndarray):
            check_logits(found[None], name, lambda _: self._place(row))
        return found

    def _softmax(self, name: str, row: int, temperature: float) -> FloatArray:
        logits = getattr(self, name)[row]
        try:
            return softmax(logits, temperature)
        except InvalidDistributionError:  # Name the row of a file in the message.
            check_logits(logits[None], name, lambda _: self._place(row))
            raise

    def _place(self, row: int) -> str:
        """Return the name of a row, with its file if it is in a file."""
        rows = self.target_logits
        return f"row {row}" + ("" if isinstance(rows, np.ndarray) else f" ({rows.where(row)})")

    def _check_row(self, row: int) -> None:
        if not isinstance(row, Integral) or not -len(self) <= row < len(self):
            raise RowOutOfRangeError(
                f"row {row!r} is out of range; this capture has {len(self)} rows, counted from 0"
            )
