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

Cut as it is served (see `otlp.data.sampling_cuts`), the target of a row is exact wherever all that
is kept was captured: by top-k always, by top-p and min-p where the tokens that they keep do not
depend on how the rest is shared.  Elsewhere only the tokens that are surely kept count as theirs.

So the target of such a row is nowhere above that of the whole row, but for the rest token.  The
optimum grows with each p_i, and by no more than p_i does, which bounds what the whole row can have
more: `TopCapture.truncation`.  Every plan for such a row is one for the whole row, as lossless and
as often accepted, once the rest token is drawn as the target has it.
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
"""By how much the rest may be off: by rounding to float32, and by what an engine's sums are."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TopCapture(Capture):
    """A `Capture` of the k likeliest tokens of each row; see the module for what that loses.

    Its arrays of logits are `TopRows`, and its vocabulary has V + 1 tokens, of which the last
    stands for all that were not kept.  All else is as in a `Capture`; `keep_top` makes one of a
    capture, and two `TopRows` of what a serving engine logged.

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
                "target_logits and draft_logits must be TopRows: use keep_top, or a Capture"
            )
        super().__post_init__()

    @property
    def in_files(self) -> bool:
        """Whether rows are read from files when they are used."""
        return isinstance(self._top("target_logits").ids, StoredRows)

    @property
    def kept(self) -> int:
        """How many of the largest tokens of the draft were kept of each row."""
        return self._top("draft_logits").k

    def _known(
        self,
        row: int,
        temperature: float,
        own: float,
        served: SamplingCuts,
        of_draft: tuple[SamplingCuts, SamplingCuts],
    ) -> tuple[FloatArray, FloatArray, float]:
        self.check_top_k(of_draft[1].top_k)
        self.check_top_k(served.top_k, "sampling_top_k")
        q = np.zeros(self.vocab_size)
        draft = self._top("draft_logits").row(row)
        q[draft.ids] = softmax(draft.logs, own)
        for cuts in of_draft:
            q = cuts.cut(q)
        target = self._top("target_logits").row(row)
        softmax(target.logs, temperature)  # which checks the temperature
        # relative to the likeliest token, so that no temperature is too low
        peak = float(target.logs.max())
        least, most = _rest(target, peak, temperature, self.vocab_size - 1 - target.ids.size)
        with np.errstate(over="ignore"):
            logs = (target.logs - peak) / float(temperature)
        if served.any:
            rest = math.exp(least), math.exp(most)
            return self._served(target.ids, np.exp(logs), *rest, served, q)
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

    def _served(
        self,
        ids: IntArray,
        weights: FloatArray,
        least: float,
        most: float,
        cuts: SamplingCuts,
        q: FloatArray,
    ) -> tuple[FloatArray, FloatArray, float]:
        """The same for a target that is cut: the tokens surely kept, and the rest at its largest.

        Parameters
        ----------
        ids, weights : ndarray, shape (k,)
            The target's tokens, and their probabilities in units of the likeliest.
        least, most : float
            Bounds on the weight of the tokens that were not captured.
        cuts : SamplingCuts
        q : ndarray, shape (V + 1,)
        """
        order = np.lexsort((ids, -weights))
        kept = ids[order][: cuts.top_k]
        sorted_weights = weights[order][: cuts.top_k]
        if cuts.top_k is not None:
            least = most = 0.0
        # how many are kept: surely, and perhaps
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
            if likely < kept.size:  # none that was not captured is likelier than the least
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

    Examples
    --------
    >>> from otlp import captures, synthetic
    >>> top = captures.keep_top(synthetic.generate(rows=2, vocab_size=4096), k=50)
    >>> top.vocab_size                     # the last token stands for all that were not kept
    4097
    >>> target, draft = top.distributions(row=0)
    >>> int((draft > 0).sum())
    50
    """
    if not isinstance(capture, Capture) or capture.kept is not None:
        raise InvalidInputError(
            f"capture is {capture!r:.200}: it must be a Capture of whole rows, such as "
            "otlp.synthetic.generate()"
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
        synthetic=capture.synthetic,
        **{label: getattr(capture, label) for label in LABELS},
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


def _log_sum(logs: FloatArray) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def _rest(row: TopRow, peak: float, temperature: float, unknown: int) -> tuple[float, float]:
    """Bounds of the sum of (p_j / exp(peak))^(1/T) over the tokens not kept, as logs."""
    rest, least = row.rest - peak, float(row.logs.min()) - peak
    if unknown == 0 or row.rest == -math.inf:
        return -math.inf, -math.inf
    if temperature == 1.0:
        return rest, rest
    power = min(1.0 / float(temperature), 1e300)
    spread = math.log(unknown) + power * min(rest - math.log(unknown), least)

    def least_spread(mass: float) -> float:
        # the extreme point: as few tokens as can be, each as likely as the least that was kept,
        # and one with what is left
        count = min(mass - least, math.log(unknown))  # log of how many
        if count <= 0.0:
            return power * mass
        full, left = divmod(math.exp(count), 1.0)
        return power * least + math.log(full + left**power)

    if power > 1.0:
        return spread, max(spread, least_spread(rest + RELATIVE))
    # above temperature 1 a token that is there by rounding alone would count for much
    sure = math.exp(row.rest) * (1.0 - RELATIVE) - ABSOLUTE
    return (least_spread(math.log(sure) - peak) if sure > 0.0 else -math.inf), spread
