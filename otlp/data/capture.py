"""What a capture is: pairs of target and draft logits over one vocabulary, and their labels."""

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
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    RowOutOfRangeError,
)

LABELS = ("target_model", "draft_model", "tokenizer", "source", "note")


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
        The text before this step; empty if unknown.
    position : int
        How many tokens of the passage come before this step; -1 if unknown.
    next_token : int
        The token that the text goes on with; -1 if unknown.

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
    """Pairs of target and draft logits over one vocabulary, and where they come from.

    ``len(capture)`` is the number of rows, ``capture[3]`` is a `CaptureRow`, ``capture[10:20]``
    is a `Capture` of those rows, and iteration goes over the rows.

    The arrays lie in memory, or in files, from which each row is read when it is asked for: then
    they are no NumPy arrays, but have a shape, a dtype, rows and slices, and ``numpy.asarray``
    reads them.  Such a capture takes no memory, whatever its size, and its pickle holds paths.

    Parameters
    ----------
    target_logits, draft_logits : ndarray or torch.Tensor, shape (rows, V)
        Logits at temperature 1, in natural units (nats), float16, bfloat16, float32 or
        float64, both alike. Minus infinity masks a token. Tensors may lie on any device, and may
        require a gradient, which is dropped.
    target_model, draft_model : str
        The names of the models.
    tokenizer : str
        The name of the tokenizer, which gives the V token ids their meaning.
    source : str
        What text the rows come from.
    synthetic : bool
        True if the logits were made up rather than computed by language models.
    note : str, optional
        Anything else that a reader should know.
    contexts : tuple of str, length rows, optional
        The text before each row; left out, unknown.
    positions : ndarray of int64, shape (rows,), optional
        How many tokens of its passage come before each row; -1, or left out, if unknown.
    next_tokens : ndarray of int64, shape (rows,), optional
        The token that the text goes on with; -1, or left out, if unknown.
    dtype : str, optional
        The precision that the logits have and are saved in: ``"float16"``, ``"bfloat16"``,
        ``"float32"`` or ``"float64"``; left out, that of the arrays. NumPy has no bfloat16, so
        bfloat16 logits are float32 arrays here whose values bfloat16 can hold.

    Raises
    ------
    InvalidInputError
        If shapes or precisions do not fit together, if a row has a NaN, plus infinity, or
        nothing but minus infinity (the message names the row), or if `dtype` does not fit them.
    TokenOutOfRangeError
        If a next token is not in [-1, V).

    Notes
    -----
    The arrays are not copied where the type allows, and are read-only. Validation is one pass
    over the logits, O(rows V); what lies in files is validated row by row, when it is read.

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
        # A bfloat16 tensor is a float32 array by now.
        given = (
            precision(self.target_logits) or target.dtype.name,
            precision(self.draft_logits) or draft.dtype.name,
        )
        if len(target.shape) != 2 or target.shape != draft.shape or target.shape[1] == 0:
            raise InvalidInputError(
                f"target_logits has shape {target.shape} and draft_logits {draft.shape}: "
                "both must be (rows, V) with the same rows and the same V of at least 1"
            )
        rows, vocab_size = target.shape
        if given[0] != given[1]:
            raise InvalidInputError(
                f"target_logits is {given[0]} and draft_logits {given[1]}: "
                "convert one, so that both have one precision"
            )
        dtype = self.dtype or given[0]
        contexts = self.contexts
        if not isinstance(contexts, StoredTexts):
            contexts = tuple(contexts) or ("",) * rows
        if len(contexts) != rows:
            raise InvalidInputError(
                f"contexts has {len(contexts)} entries for {rows} rows: give one for each row, "
                "or none at all"
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
        """The vocabulary size V."""
        return int(self.target_logits.shape[1])

    @property
    def model_vocab_size(self) -> int:
        """The number of tokens of the models: V, without a token that stands for the rest."""
        return self.vocab_size - (self.kept is not None)

    @property
    def passages(self) -> IntArray:
        """The passage of each row, shape (rows,).

        A row goes on with the passage of the row before at the next position, or further on where
        its context goes on with the text before.  A row of unknown position is alone.
        """
        positions = np.asarray(self.positions)
        apart = np.diff(positions, prepend=-2)
        begins = (apart != 1) | (positions < 0)
        for row in np.flatnonzero((apart[1:] > 1) & (positions[:-1] >= 0)) + 1:
            # an unfinished character is another, once finished
            before = self.contexts[int(row) - 1].rstrip("\ufffd")
            begins[row] = not before or not self.contexts[int(row)].startswith(before)
        found: IntArray = begins.cumsum()
        return found

    def __repr__(self) -> str:
        """Say what the capture is, without its numbers."""
        kind = "synthetic" if self.synthetic else "real"
        return (
            f"{type(self).__name__}({len(self)} {kind} rows, V = {self.vocab_size}, {self.dtype}, "
            f"target {self.target_model!r}, draft {self.draft_model!r})"
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
        """Return one row for a number, or a capture of some rows for a slice."""
        if isinstance(rows, slice):
            return replace(
                self,
                target_logits=self.target_logits[rows],
                draft_logits=self.draft_logits[rows],
                contexts=self.contexts[rows],
                positions=self.positions[rows],
                next_tokens=self.next_tokens[rows],
            )
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
        """Turn one row into the target and the draft distribution.

        Parameters
        ----------
        row : int
            The row; negative numbers count from the end.
        temperature : float
            Divides the target's logits, and the draft's too unless `draft_temperature` is given,
            as in a sampler with one temperature for both models; greater than 0.
        draft_temperature : float, optional
            Divides the draft's logits instead of `temperature`.
        top_k : int, optional
            Keep the k likeliest tokens of the draft: exactly k of them, ties going to the lowest
            token id. Never touches the target, whose distribution stays what it was.
        top_p : float, optional
            Keep the smallest set of likeliest tokens of the draft whose mass reaches `top_p`,
            ties likewise. With `top_k` too, the mass is that after the top-k cut.
        sampling_top_k, sampling_top_p, sampling_min_p : optional
            Cut both models as they are served: by top-k, then by top-p, then by min-p.  The draft's
            own cuts follow.  See `otlp.data.sampling_cuts.SamplingCuts`.
        whole_draft : bool
            Apply these cuts to the target alone.  The draft is cut by `top_k` and `top_p` only.

        Returns
        -------
        p, q : ndarray, shape (V,), float64
            The target's and the draft's probabilities, each summing to one.  Of a `TopCapture`
            over V + 1 tokens: the draft, cut to the tokens kept before all else, is exact up to the
            rounding of the logs; the target is exact at temperature 1 and nowhere too large at
            others, but for the rest, its last entry.

        Raises
        ------
        RowOutOfRangeError
            If there is no such row.
        InvalidInputError
            If a temperature is not positive and finite, k is below 1, or `top_p` not in (0, 1];
            or if the row lies in a file and holds no logits, such as a NaN; or if more tokens are
            asked for than a `TopCapture` kept.
        CaptureError
            If the row lies in a file that has changed, or has gone.

        Notes
        -----
        The softmax is taken in float64 whatever the logits' precision. O(V), and O(V log V) with
        `top_k` or `top_p`.
        """
        self._check_row(row)
        own = temperature if draft_temperature is None else draft_temperature
        served = SamplingCuts(sampling_top_k, sampling_top_p, sampling_min_p)
        both = SamplingCuts() if whole_draft else served
        p, q, _ = self._known(row, temperature, own, served, (both, SamplingCuts(top_k, top_p)))
        return p, q

    @property
    def in_files(self) -> bool:
        """Whether rows are read from files when they are used."""
        return not isinstance(self.target_logits, np.ndarray)

    @property
    def kept(self) -> int | None:
        """How many of the largest tokens were kept of each row; None if all were."""
        return None

    def check_top_k(self, top_k: int | None, name: str = "top_k") -> None:
        """Refuse a top-k size that the rows cannot give, before any row is used.

        Raises
        ------
        InvalidInputError
            If it is no whole number of at least 1, or larger than what was kept.
        """
        if top_k is not None and whole_number(top_k, "top-k size") > (self.kept or np.inf):
            raise InvalidInputError(
                f"{name} is {top_k}: this capture kept the {self.kept} likeliest tokens of each "
                f"row; use {self.kept} at most, or a capture of whole rows"
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
        """By how much the row as it was before a cut may be accepted more often.

        The optimal acceptance of the whole row is at least that of `distributions`, and at most
        that plus this number, for every draft scheme; see `TopCapture`.

        Parameters
        ----------
        row, temperature, draft_temperature, top_k, top_p
            As in `distributions`.
        sampling_top_k, sampling_top_p, sampling_min_p, whole_draft
            As in `distributions`.

        Returns
        -------
        float
            In [0, 1], up to the rounding of the logs, some 1e-6 / T; 0 for a capture of whole rows.

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
        return self._known(row, temperature, own, served, (both, SamplingCuts(top_k, top_p)))[2]

    def _known(
        self,
        row: int,
        temperature: float,
        own: float,
        served: SamplingCuts,
        of_draft: tuple[SamplingCuts, SamplingCuts],
    ) -> tuple[FloatArray, FloatArray, float]:
        """Target, draft (at its own temperature), and how much more the target may have on it."""
        p = self._softmax("target_logits", row, temperature)
        q = self._softmax("draft_logits", row, own)
        for cuts in of_draft:
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
        except InvalidDistributionError:  # of a row that lies in a file: name it
            check_logits(logits[None], name, lambda _: self._place(row))
            raise

    def _place(self, row: int) -> str:
        """Name a row, and where it lies if that is in a file."""
        rows = self.target_logits
        return f"row {row}" + ("" if isinstance(rows, np.ndarray) else f" ({rows.where(row)})")

    def _check_row(self, row: int) -> None:
        if not isinstance(row, Integral) or not -len(self) <= row < len(self):
            raise RowOutOfRangeError(
                f"row {row!r} is out of range: this capture has {len(self)} rows, counted from 0"
            )
