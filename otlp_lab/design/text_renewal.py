"""Text renewal: tokens a target call of a verification algorithm, from text that the target wrote.

Let x be such a text, A(x_1..x_l) the probability that a round from its beginning accepts these
tokens, itself or as the beginning of more, and P that of the target.  By losslessness the round
accepts exactly l tokens, and then the text goes on as it does, with probability r_l - r_(l+1),
r_l = A/P, given the text.  So rounds renew along the text: where they begin is a Markov chain
whose every step is known, and no round has to be played.  A/P depends on the distributions along
the text alone for every algorithm whose accepted mass does: block verification, the selections of
a path by their scores, the top-down rules, traversal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp.checks import real_array, token_ids, whole_number
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class WrittenText:
    """A text that the target wrote, and what both models said before each of its tokens.

    Parameters
    ----------
    tokens : ndarray of int64, shape (T,)
        Sampled from the target one by one, each from the row of `targets` at its place.
    targets, drafts : ndarray, shape (T, V)
        The target's and the draft's next-token distributions p and q, rows that sum to one.

    Raises
    ------
    InvalidInputError
        If shapes or types do not fit together, or the target gives a token probability 0: it did
        not write that text.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> len(text)
    8
    """

    tokens: IntArray
    targets: FloatArray
    drafts: FloatArray

    def __post_init__(self) -> None:
        targets = real_array(self.targets, "targets", 2)
        drafts = real_array(self.drafts, "drafts", 2)
        tokens = token_ids(self.tokens, "tokens", targets.shape[1])
        if targets.shape != drafts.shape or tokens.size != len(targets):
            raise InvalidInputError(
                f"the text has {tokens.size} tokens, targets have shape {targets.shape} and drafts "
                f"{drafts.shape}: both need a row for each token, over one vocabulary"
            )
        odd = np.flatnonzero(targets[np.arange(tokens.size), tokens] <= 0.0)
        if odd.size:
            raise InvalidInputError(
                f"the target gives token {tokens[odd[0]]} at place {odd[0]} probability 0: give "
                "text that the target wrote with the same sampling"
            )
        for name, value in (("tokens", tokens), ("targets", targets), ("drafts", drafts)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of tokens T."""
        return int(self.tokens.size)

    @cached_property
    def places(self) -> list[tuple[int, FloatArray, FloatArray]]:
        """Token, p and q at each place, over the tokens that matter there.

        Tokens that are never proposed matter by their total mass p alone: they are one token, the
        last.  Of tokens with q = 0 a tree may propose those of the lowest ids, where it takes more
        certain children than the draft has tokens: `MOST_PROPOSED` of these are kept.
        """
        return list(map(_joined, self.tokens.tolist(), self.targets, self.drafts))

    def starts(self, length: int) -> int:
        """How many places a round of up to `length` drafted tokens can begin at, seen whole.

        Raises
        ------
        InvalidInputError
            If there is none.
        """
        starts = len(self) - whole_number(length, "length")
        if starts < 1:
            raise InvalidInputError(
                f"the text has {len(self)} tokens: rounds of up to {length} drafted tokens need "
                f"texts of at least {length + 1}, better ten times that"
            )
        return starts


MOST_PROPOSED = 16
"""Tokens without probability that a tree may propose, those of the lowest ids."""


def _proposed(drafted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The tokens that may be proposed, of those that are drafted and those that are not."""
    kept = drafted.copy()
    kept[np.flatnonzero(~drafted)[:MOST_PROPOSED]] = True
    return kept


def _joined(token: int, p: FloatArray, q: FloatArray) -> tuple[int, FloatArray, FloatArray]:
    """Join the tokens of one place that are neither proposed nor written."""
    kept = _proposed(q > 0.0)
    kept[token] = True
    if np.count_nonzero(~kept) < 2:
        return token, p, q
    rest = p[~kept].sum()
    return int(kept[:token].sum()), np.append(p[kept], rest), np.append(q[kept], 0.0)


def without_undrafted(text: WrittenText) -> WrittenText:
    """The same text over fewer tokens: those that are nowhere proposed, nor written, are made one.

    Acceptance depends on them by the target's mass of all of them alone; see `WrittenText.places`.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design.text_renewal import WrittenText, without_undrafted
    >>> text = WrittenText(np.array([0]), np.full((1, 99), 1 / 99), np.eye(1, 99))
    >>> fewer = without_undrafted(text)
    >>> fewer.targets.shape, round(float(fewer.targets[0, -1]), 6)
    ((1, 18), 0.828283)
    """
    kept = _proposed(text.drafts.max(axis=0) > 0.0)
    kept[text.tokens] = True
    if np.count_nonzero(~kept) < 2:
        return text
    rest = text.targets[:, ~kept].sum(axis=1, keepdims=True)
    columns = np.cumsum(kept) - 1
    return WrittenText(
        columns[text.tokens],
        np.concatenate([text.targets[:, kept], rest], axis=1),
        np.concatenate([text.drafts[:, kept], np.zeros_like(rest)], axis=1),
    )


@dataclass(frozen=True)
class Renewal:
    """Tokens and target calls that texts of one length are expected to take.

    Attributes
    ----------
    tokens, calls : tuple of float
        For each text: tokens of the rounds that begin in it, and how many these are.

    Examples
    --------
    >>> from otlp_lab.design import Renewal
    >>> Renewal(tokens=(2.0, 4.0), calls=(1.0, 2.0)).efficiency
    2.0
    """

    tokens: tuple[float, ...]
    calls: tuple[float, ...]

    @property
    def efficiency(self) -> float:
        """Tokens a target call."""
        return float(sum(self.tokens) / sum(self.calls))

    @property
    def error(self) -> float:
        """Standard error of the efficiency, texts being the independent units; NaN for one."""
        n = len(self.tokens)
        if n < 2:
            return float("nan")
        tokens, calls = np.array(self.tokens), np.array(self.calls)
        apart = (tokens - self.efficiency * calls) / calls.sum()
        return float(np.sqrt(n / (n - 1) * np.sum(apart**2)))

    @classmethod
    def of(cls, profiles: Iterable[FloatArray]) -> Renewal:
        """Renew along each of some texts; see `renew`."""
        found = [renew(profile) for profile in profiles]
        return cls(tuple(tokens for tokens, _ in found), tuple(calls for _, calls in found))


def renew(profile: FloatArray) -> tuple[float, float]:
    """Expected tokens and calls of the rounds that begin in a text, the first at its first token.

    Parameters
    ----------
    profile : ndarray, shape (starts, L + 1)
        r_l = A/P of the next l tokens at each place, with 1 at l = 0; falling along each row.

    Returns
    -------
    tokens, calls : float

    Notes
    -----
    Exact, and unbiased where the rows are independent unbiased estimates.  O(starts L).
    """
    starts, width = profile.shape
    exactly = profile - np.append(profile[:, 1:], np.zeros((starts, 1)), axis=1)
    visits = np.zeros(starts + width)
    visits[0] = 1.0
    for place in range(starts):
        visits[place + 1 : place + 1 + width] += visits[place] * exactly[place]
    begun = visits[:starts]
    return float(begun @ profile.sum(axis=1)), float(begun.sum())
