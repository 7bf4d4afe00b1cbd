"""Captures of the k most likely tokens per row and the mass of the rest, as logged by engines.

For each model a row has k token ids, their log-probabilities at temperature 1, and the log of the
total probability of all other tokens (the rest).  The distribution of the rest over tokens is
unknown, except that no token of the rest is more likely than the least likely of the k tokens.

The draft of a row is limited to the stored tokens, as by top-k sampling.  The target has one
additional token, the last, with the mass of the rest, which is never drafted.  The optimal
acceptance is min over H of p(H) + P(some draft outside H) (Global Resolution, Eq. 4), where H needs
only tokens that can be drafted.  The loss is therefore:

- Zero, at temperature 1, if all tokens that can be drafted are among the k tokens of the target:
  tokens that are never drafted matter only by their total mass.
- A token that can be drafted and is not among the k tokens of the target gets target probability
  0.  Its true probability is at most that of the least likely of the k tokens, and the total of
  such tokens is at most the rest.
- At other temperatures the mass of the rest is unknown but bounded.  It is largest if the fewest
  tokens share it, for temperatures below 1, and if all tokens share it, for temperatures above 1.
  The largest mass is used, so that no token gets more than its target probability.

With sampling cuts (see `otlp.data.sampling_cuts`), the target of a row is exact if all tokens kept
by the cuts are stored: always for top-k, and for top-p and min-p if the kept tokens do not depend
on the distribution of the rest.  Otherwise only the tokens that are certainly kept have mass.

The target of a row is thus nowhere larger than that of the whole row, except for the rest token.
The optimum rises with each p_i by at most the increase of p_i, which bounds the optimum of the
whole row: see `TopCapture.truncation`.  Every plan for the row is a plan for the whole row, equally
lossless and with the same acceptance, if the rest token is replaced by a draw of the target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otlp.checks import whole_number
from otlp.data.capture import LABELS, Capture
from otlp.data.sampling_cuts import SamplingCuts
from otlp.data.stored_rows import StoredRows
from otlp.data.top_rows import ROUNDING, TopRow, TopRows, stack
from otlp.distribution import FloatArray, IntArray, softmax
from otlp.errors import InvalidInputError

RELATIVE, ABSOLUTE = 1e-5, 2 * ROUNDING
"""Error bounds of the rest: relative, from rounding to float32, and absolute, from engine sums."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TopCapture(Capture):
    """A `Capture` of the k most likely tokens of each row; see `truncation` for the loss.

    The arrays of logits are `TopRows`, and the vocabulary has V + 1 tokens; the last token has the
    mass of all tokens that are not stored.  Create a `TopCapture` from a capture with `keep_top`,
    or from the logs of a serving engine with two `TopRows`.

    Examples
    --------
    >>> from otlp import captures
    >>> top = captures.builtin()
    >>> type(top).__name__, top.kept, top[:10].kept
    ('TopCapture', 1500, 1500)
    """

    def __post_init__(self) -> None:
        target, draft = self.target_logits, self.draft_logits
        if not isinstance(target, TopRows) or not isinstance(draft, TopRows):
            raise InvalidInputError(
                "target_logits and draft_logits must be TopRows; use keep_top, or a Capture"
            )
        super().__post_init__()

    @property
    def in_files(self) -> bool:
        """Whether rows are read from files on access."""
        return isinstance(self._top("target_logits").ids, StoredRows)

    @property
    def kept(self) -> int:
        """Number of most likely tokens of the draft stored per row."""
        return self._top("draft_logits").k

    def _cut_row(
        self,
        row: int,
        temperature: float,
        draft_temperature: float,
        served: SamplingCuts,
        draft_cuts: tuple[SamplingCuts, SamplingCuts],
    ) -> tuple[FloatArray, FloatArray, float]:
        self.check_top_k(draft_cuts[1].top_k)
        self.check_top_k(served.top_k, "sampling_top_k")
        q = np.zeros(self.vocab_size)
        draft = self._top("draft_logits").row(row)
        q[draft.ids] = softmax(draft.logs, draft_temperature)
        for cuts in draft_cuts:
            q = cuts.cut(q)
        target = self._top("target_logits").row(row)
        softmax(target.logs, temperature)  # Check the temperature.
        # Subtract the largest log, so that low temperatures cannot overflow.
        peak = float(target.logs.max())
        least, most = _rest(target, peak, temperature, self.vocab_size - 1 - target.ids.size)
        with np.errstate(over="ignore"):
            logs = (target.logs - peak) / float(temperature)
        if served.any:
            rest = math.exp(least), math.exp(most)
            return self._cut_target(target.ids, np.exp(logs), *rest, served, q)
        largest = softmax(np.append(logs, most))  # The target with the largest rest.
        p = np.zeros(self.vocab_size)
        p[target.ids], p[-1] = largest[:-1], largest[-1]
        # With the smallest rest, all stored tokens have their largest probability.
        total = float(np.logaddexp(_log_sum(logs), least))
        growth = math.expm1(float(np.logaddexp(_log_sum(logs), most)) - total)
        among = growth * float(p[:-1][q[:-1] > 0.0].sum())
        outside = int((q > 0.0).sum() - (q[target.ids] > 0.0).sum())
        beyond = outside * math.exp(min(float(logs.min()), most) - total)
        return p, q, min(float(p[-1]), among + beyond)

    def _cut_target(
        self,
        ids: IntArray,
        weights: FloatArray,
        least: float,
        most: float,
        cuts: SamplingCuts,
        q: FloatArray,
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the same for a cut target: tokens certainly kept, and the largest rest.

        Parameters
        ----------
        ids, weights : ndarray, shape (k,)
            Stored tokens of the target, and their probabilities relative to the largest.
        least, most : float
            Bounds on the total weight of the tokens that are not stored.
        cuts : SamplingCuts
        q : ndarray, shape (V + 1,)
        """
        order = np.lexsort((ids, -weights))
        kept = ids[order][: cuts.top_k]
        sorted_weights = weights[order][: cuts.top_k]
        if cuts.top_k is not None:
            least = most = 0.0
        # Bounds on the number of stored tokens that are kept.
        sure = maybe = kept.size
        if cuts.top_p is not None and cuts.top_p < 1.0:
            below = np.cumsum(sorted_weights)
            ends = [float(cuts.top_p) * (below[-1] + rest) for rest in (least, most)]
            sure, maybe = (min(kept.size, int(np.searchsorted(below, end)) + 1) for end in ends)
            if ends[1] <= below[-1]:
                most = 0.0
            least = max(0.0, ends[0] - below[-1])
        if cuts.min_p is not None and cuts.min_p > 0.0:
            likely = int((sorted_weights >= cuts.min_p * sorted_weights[0]).sum())
            sure, maybe, least = min(sure, likely), min(maybe, likely), 0.0
            if likely < kept.size:  # No token of the rest is more likely than a stored token.
                most = 0.0
        largest = float(sorted_weights[:maybe].sum()) + most
        p = np.zeros(self.vocab_size)
        p[kept[:sure]] = sorted_weights[:sure] / largest
        exact = sure == maybe and most == least
        p[-1] = most / largest if exact else max(0.0, 1.0 - float(p[:-1].sum()))
        return p, q, 0.0 if exact and most == 0.0 else float(p[-1])

    def _top(self, name: str) -> TopRows:
        rows: TopRows = getattr(self, name)
        return rows


def keep_top(capture: Capture, k: int) -> TopCapture:
    """Reduce a capture to the k most likely tokens of every row and the mass of the rest.

    Parameters
    ----------
    capture : Capture
        Capture of whole rows, in memory or in files.
    k : int
        Number of tokens of target and draft to keep, at least 1; all tokens if there are fewer.
        Ties go to the lowest token id.

    Returns
    -------
    TopCapture
        Capture in memory, with 16 k + 24 bytes per row and the contexts.

    Raises
    ------
    InvalidInputError
        If `k` is not an integer of at least 1, or `capture` is a `TopCapture` already.

    Notes
    -----
    Time: O(rows V).

    Examples
    --------
    >>> from otlp import captures, synthetic
    >>> top = captures.keep_top(synthetic.generate(rows=2, vocab_size=4096), k=50)
    >>> top.vocab_size                     # the last token has the mass of all tokens not kept
    4097
    >>> target, draft = top.distributions(row=0)
    >>> int((draft > 0).sum())
    50
    """
    if not isinstance(capture, Capture) or capture.kept is not None:
        raise InvalidInputError(
            "capture must be a Capture of whole rows, such as otlp.synthetic.generate(), got "
            f"{capture!r:.200}"
        )
    k = min(whole_number(k, "k"), capture.vocab_size)
    target, draft = [], []
    for row in range(len(capture)):
        p, q = capture.distributions(row)
        target.append(_top_row(p, k))
        draft.append(_top_row(q, k))
    return TopCapture(
        target_logits=stack(target, k, capture.vocab_size),
        draft_logits=stack(draft, k, capture.vocab_size),
        synthetic=capture.synthetic,
        **{label: getattr(capture, label) for label in LABELS},
        contexts=tuple(capture.contexts),
        positions=np.asarray(capture.positions),
        next_tokens=np.asarray(capture.next_tokens),
    )


def _top_row(p: FloatArray, k: int) -> TopRow:
    least = np.partition(p, p.size - k)[p.size - k]
    sure = np.flatnonzero(p > least)
    ids = np.concatenate((sure, np.flatnonzero(p == least)[: k - sure.size]))
    ids = ids[np.argsort(-p[ids], kind="stable")]
    others = p.copy()
    others[ids] = 0.0
    with np.errstate(divide="ignore"):
        return TopRow(ids.astype(np.int64), np.log(p[ids]), float(np.log(others.sum())))


def _log_sum(logs: FloatArray) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def _rest(row: TopRow, peak: float, temperature: float, unknown: int) -> tuple[float, float]:
    """Return log bounds of the sum of (p_j / exp(peak))^(1/T) over the tokens not stored."""
    rest, least = row.rest - peak, float(row.logs.min()) - peak
    if unknown == 0 or row.rest == -math.inf:
        return -math.inf, -math.inf
    if temperature == 1.0:
        return rest, rest
    power = min(1.0 / float(temperature), 1e300)
    spread = math.log(unknown) + power * min(rest - math.log(unknown), least)

    def least_spread(mass: float) -> float:
        # Extreme point: the fewest tokens, each as likely as the least likely stored token, and one
        # token with the remaining mass.
        count = min(mass - least, math.log(unknown))  # Log of the number of tokens.
        if count <= 0.0:
            return power * mass
        full, left = divmod(math.exp(count), 1.0)
        return power * least + math.log(full + left**power)

    if power > 1.0:
        return spread, max(spread, least_spread(rest + RELATIVE))
    # Above temperature 1, mass that is only a rounding error would get a large weight.
    sure = math.exp(row.rest) * (1.0 - RELATIVE) - ABSOLUTE
    return (least_spread(math.log(sure) - peak) if sure > 0.0 else -math.inf), spread
