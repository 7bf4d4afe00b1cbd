"""The k largest tokens of each row, and the mass of the rest: what serving engines log.

For each model a row has k token ids, their log-probabilities at temperature 1, and the log of the
probability of all other tokens together.  Which tokens share the rest, and how, is not known; what
is known is that none of them is likelier than the least of the k.

The draft of such a row is the draft cut to the tokens that were kept, as by top-k sampling.  The
target stays over all tokens, with one more, the last, that stands for the rest and is never
drafted.  What is lost (the optimal acceptance is min over H of p(H) + P(some draft outside H),
Global Resolution, Eq. 4, and only tokens that can be drafted need be in H):

- Nothing, where temperature is 1 and all tokens that can be drafted are among the k of the target:
  tokens that are never drafted matter by their total mass alone.
- A token that can be drafted and is not among the k of the target counts as if the target had
  nothing there.  It has at most the least of the k, and all of them at most the rest.
- At another temperature the rest is not known but bounded: it is largest, for temperatures below
  1, where the fewest tokens share it, and for those above 1 where all do.  It is taken at its
  largest, so that no token counts more than the target has.

So the target of such a row is nowhere above that of the whole row, but for the rest token.  The
optimum grows with each p_i, and by no more than p_i does, which bounds what the whole row can have
more: `TopCapture.truncation`.  Every plan for such a row is one for the whole row, as lossless and
as often accepted, once the rest token is drawn as the target has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otlp.data.capture import Capture
from otlp.data.rows import LazyArray, Rows
from otlp.distribution import FloatArray, IntArray, ReadOnly, frozen, softmax, whole_number
from otlp.distribution import top_k as keep_top_k
from otlp.distribution import top_p as keep_top_p
from otlp.errors import InvalidInputError, RowOutOfRangeError

__all__ = ["TopCapture", "TopRow", "TopRows", "keep_top", "stack"]

SLACK = 1e-3
"""How far the masses of a row may be from adding up to one, as in float32."""

MOST_TOKENS = 2**24
"""So that a file cannot ask for rows of any length."""

Column = npt.NDArray[Any] | Rows


class TopRow(NamedTuple):
    """One row: ids and log-probabilities, shape (k,), and the log of the rest."""

    ids: IntArray
    logs: FloatArray
    rest: float


@dataclass(frozen=True, eq=False)
class TopRows(ReadOnly, LazyArray):
    """Log-probabilities of which only the largest were kept.

    Serves as an array (rows, V + 1) of float32: the kept ones in their places, the log of the
    mass of the rest at the end, minus infinity elsewhere.

    Parameters
    ----------
    ids : ndarray of int, shape (rows, k)
        The k likeliest tokens.
    logprobs : ndarray of float, shape (rows, k)
        Their log-probabilities at temperature 1.
    rest : ndarray of float, shape (rows,)
        Log of the probability of all other tokens; minus infinity where there is none.
    vocab_size : int
        V.

    Raises
    ------
    InvalidInputError
        If shapes, types or a row do not fit together; what lies in files is validated row by row.
    """

    ids: Column
    logprobs: Column
    rest: Column
    vocab_size: int

    def __post_init__(self) -> None:
        vocab_size = whole_number(self.vocab_size, "vocab_size")
        if vocab_size > MOST_TOKENS:
            raise InvalidInputError(
                f"vocab_size is {vocab_size:,}: rows of at most {MOST_TOKENS:,} tokens are made"
            )
        object.__setattr__(self, "vocab_size", vocab_size)
        columns = {}
        for name, kinds in (("ids", "iu"), ("logprobs", "f"), ("rest", "f")):
            column = getattr(self, name)
            if not isinstance(column, Rows):
                column = np.asarray(column)
            if column.dtype.kind not in kinds:
                raise InvalidInputError(
                    f"{name} holds {column.dtype}: ids are integers, all else floats"
                )
            columns[name] = column
        ids, logprobs, rest = columns.values()
        if len(ids.shape) != 2 or ids.shape != logprobs.shape or ids.shape[:1] != rest.shape:
            raise InvalidInputError(
                f"ids has shape {ids.shape}, logprobs {logprobs.shape} and rest {rest.shape}: they "
                "must be (rows, k), (rows, k) and (rows,)"
            )
        if not 1 <= ids.shape[1] <= self.vocab_size:
            raise InvalidInputError(
                f"{ids.shape[1]} tokens a row are kept of V = {self.vocab_size}: it must be at "
                "least 1 and at most V"
            )
        if not any(isinstance(column, Rows) for column in columns.values()):
            _check(ids, logprobs, rest, vocab_size, str)
            columns = {
                "ids": frozen(ids.astype(np.int32)),
                "logprobs": frozen(logprobs.astype(np.float32)),
                "rest": frozen(rest.astype(np.float32)),
            }
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and V + 1."""
        return (self.ids.shape[0], self.vocab_size + 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    @property
    def k(self) -> int:
        """How many tokens a row were kept."""
        return int(self.ids.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.ids.shape[0])

    def __getitem__(self, rows: Any, /) -> Any:
        """Return one row, shape (V + 1,), or the `TopRows` of a slice."""
        if isinstance(rows, slice):
            return TopRows(self.ids[rows], self.logprobs[rows], self.rest[rows], self.vocab_size)
        ids, logs, rest = self.row(rows)
        dense = np.full(self.vocab_size + 1, -np.inf, dtype=np.float32)
        dense[ids], dense[-1] = logs, rest
        return frozen(dense)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """All rows, shape (rows, V + 1)."""
        made = np.empty(self.shape, np.float32 if dtype is None else dtype)
        for row in range(len(self)):
            made[row] = self[row]
        return made

    def row(self, row: int) -> TopRow:
        """Return one row as it was kept.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError
            If there is none, or if it lies in a file and holds no such row.
        """
        if not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row} is out of range: there are {len(self)} rows")
        ids, logs, rest = (np.asarray(c[row]) for c in (self.ids, self.logprobs, self.rest))
        if isinstance(self.ids, Rows):
            _check(
                *(ids[None], logs[None], rest[None], self.vocab_size),
                lambda _: f"{row} ({self.where(row)})",
            )
        return TopRow(ids.astype(np.int64), logs.astype(np.float64), float(rest))

    def where(self, row: int) -> str:
        """Say where a row lies."""
        return self.ids.where(row) if isinstance(self.ids, Rows) else "in memory"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TopCapture(Capture):
    """A `Capture` of the k likeliest tokens of each row; see the module for what that loses.

    Its arrays of logits are `TopRows`, and its vocabulary has V + 1 tokens, of which the last
    stands for all that were not kept.  All else is as in a `Capture`; `keep_top` makes one of a
    capture, and `from_logprobs` of what a serving engine logged.
    """

    def __post_init__(self) -> None:
        target, draft = self.target_logits, self.draft_logits
        if not isinstance(target, TopRows) or not isinstance(draft, TopRows):
            raise InvalidInputError(
                "target_logits and draft_logits must be TopRows: use keep_top, or a Capture"
            )
        super().__post_init__()

    @property
    def kept(self) -> int:
        """How many of the largest tokens of the draft were kept of each row."""
        return self._top("draft_logits").k

    def distributions(
        self,
        row: int,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Turn one row into a target and a draft distribution, over V + 1 tokens.

        Parameters
        ----------
        row, temperature, draft_temperature, top_k, top_p
            As in `Capture.distributions`; the draft is cut to the tokens kept before all else, so
            `top_k` is at most their number, and `top_p` is of their mass.

        Returns
        -------
        p, q : ndarray, shape (V + 1,), float64
            The draft is exact, up to the rounding of the logs.  The target is exact at temperature
            1 and nowhere too large at others, but for the rest, its last entry.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError, CaptureError
            As in `Capture.distributions`, or if more tokens are asked for than were kept.
        """
        p, q, _ = self._known(row, temperature, draft_temperature, top_k, top_p)
        return p, q

    def truncation(
        self,
        row: int,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> float:
        """See `Capture.truncation`; up to the rounding of the logs, some 1e-6."""
        return self._known(row, temperature, draft_temperature, top_k, top_p)[2]

    def _known(
        self,
        row: int,
        temperature: float,
        draft_temperature: float | None,
        top_k: int | None,
        top_p: float | None,
    ) -> tuple[FloatArray, FloatArray, float]:
        """Target, draft, and how much more the target may have on what can be drafted."""
        self._check_row(row)
        self.check_top_k(top_k)
        q = np.zeros(self.vocab_size)
        draft = self._top("draft_logits").row(row)
        q[draft.ids] = softmax(
            draft.logs, temperature if draft_temperature is None else draft_temperature
        )
        if top_k is not None:
            q = keep_top_k(q, top_k)
        if top_p is not None:
            q = keep_top_p(q, top_p)
        target = self._top("target_logits").row(row)
        softmax(target.logs, temperature)  # which checks the temperature
        # relative to the likeliest token, so that no temperature is too low
        peak = float(target.logs.max())
        target = TopRow(target.ids, target.logs - peak, target.rest - peak)
        least, most = _rest(target, temperature, self.vocab_size - 1 - target.ids.size)
        with np.errstate(over="ignore"):
            logs = target.logs / float(temperature)
        largest = softmax(np.append(logs, most))  # with the rest at its largest
        p = np.zeros(self.vocab_size)
        p[target.ids], p[-1] = largest[:-1], largest[-1]
        # with the rest at its least, all others are at their likeliest
        total = float(np.logaddexp(_log_sum(logs), least))
        growth = math.expm1(float(np.logaddexp(_log_sum(logs), most)) - total)
        among = growth * float(p[:-1][q[:-1] > 0.0].sum())
        outside = int((q > 0.0).sum() - (q[target.ids] > 0.0).sum())
        beyond = outside * math.exp(min(float(logs.min()), most) - total)
        return p, q, min(float(p[-1]), among + beyond)

    def _top(self, name: str) -> TopRows:
        rows: TopRows = getattr(self, name)
        return rows


def keep_top(capture: Capture, k: int) -> TopCapture:
    """Keep the k likeliest tokens of every row, and the mass of the rest.

    Parameters
    ----------
    capture : Capture
        Of whole rows, in memory or in files.
    k : int
        How many tokens of target and draft, at least 1; all, if there are fewer.  Ties go to the
        lowest token id.

    Returns
    -------
    TopCapture
        In memory: 16 k + 24 bytes a row, and the contexts.

    Raises
    ------
    InvalidInputError
        If `k` is no whole number of at least 1, or the rows are cut already.

    Notes
    -----
    O(rows V).
    """
    if not isinstance(capture, Capture) or capture.kept is not None:
        raise InvalidInputError(
            f"capture is {capture!r:.200}: it must be a Capture of whole rows, such as "
            "captures.builtin()"
        )
    k = min(whole_number(k, "k"), capture.vocab_size)
    target, draft = [], []
    for row in range(len(capture)):
        p, q = capture.distributions(row)
        target.append(_likeliest(p, k))
        draft.append(_likeliest(q, k))
    return TopCapture(
        target_logits=stack(target, k, capture.vocab_size),
        draft_logits=stack(draft, k, capture.vocab_size),
        target_model=capture.target_model,
        draft_model=capture.draft_model,
        tokenizer=capture.tokenizer,
        source=capture.source,
        synthetic=capture.synthetic,
        note=capture.note,
        contexts=tuple(capture.contexts),
        positions=np.asarray(capture.positions),
        next_tokens=np.asarray(capture.next_tokens),
    )


def _likeliest(p: FloatArray, k: int) -> TopRow:
    least = np.partition(p, p.size - k)[p.size - k]
    sure = np.flatnonzero(p > least)
    ids = np.concatenate((sure, np.flatnonzero(p == least)[: k - sure.size]))
    ids = ids[np.argsort(-p[ids], kind="stable")]
    others = p.copy()
    others[ids] = 0.0
    with np.errstate(divide="ignore"):
        return TopRow(ids.astype(np.int64), np.log(p[ids]), float(np.log(others.sum())))


def stack(rows: Sequence[TopRow], k: int, vocab_size: int) -> TopRows:
    """Put rows of k tokens into arrays."""
    return TopRows(
        np.array([row.ids for row in rows], dtype=np.int64).reshape(-1, k),
        np.array([row.logs for row in rows], dtype=np.float32).reshape(-1, k),
        np.array([row.rest for row in rows], dtype=np.float32),
        vocab_size,
    )


def _log_sum(logs: FloatArray) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def _rest(row: TopRow, temperature: float, unknown: int) -> tuple[float, float]:
    """Logs of the least and of the most that sum_j p_j^(1/T) can be over the tokens not kept."""
    if unknown == 0 or row.rest == -math.inf:
        return -math.inf, -math.inf
    if temperature == 1.0:
        return row.rest, row.rest
    power = min(1.0 / float(temperature), 1e300)
    least = float(row.logs.min())
    count = min(row.rest - least, math.log(unknown))  # log of how many would do
    spread = math.log(unknown) + power * min(row.rest - math.log(unknown), least)
    few = power * row.rest
    if count > 0.0:
        # as few as can be, each as likely as the least that was kept, and one with what is left
        full, left = divmod(math.exp(count), 1.0)
        few = power * least + math.log(full + left**power)
    return min(spread, few), max(spread, few)


def _check(
    ids: npt.NDArray[Any],
    logprobs: npt.NDArray[Any],
    rest: npt.NDArray[Any],
    vocab_size: int,
    place: Callable[[int], str],
) -> None:
    """Refuse the first row that cannot be the k likeliest tokens of a distribution."""
    k = ids.shape[1]
    logs, others = logprobs.astype(np.float64), rest.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.exp(logs).sum(axis=1) + np.exp(others)
        most = (vocab_size - k) * np.exp(logs.min(axis=1)) * (1.0 + SLACK) + SLACK
        wrong = {
            f"a token id outside [0, {vocab_size})": ((ids < 0) | (ids >= vocab_size)).any(axis=1),
            "a token twice": (np.diff(np.sort(ids, axis=1), axis=1) == 0).any(axis=1),
            "masses that do not add up to 1": ~(np.abs(total - 1.0) <= SLACK),
            "more in the rest than tokens less likely than those kept can have": (
                np.exp(others) > most
            ),
        }
    for what, rows in wrong.items():
        for row in np.flatnonzero(rows)[:1]:
            raise InvalidInputError(
                f"row {place(int(row))} holds {what}: it must have the ids and log-probabilities "
                f"of the {k} likeliest tokens, and the log of the probability of all others"
            )
