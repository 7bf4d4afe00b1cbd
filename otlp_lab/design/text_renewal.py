"""Text renewal: tokens per target call of a verification algorithm, from text of the target.

Let x be a text decoded from the target, A(x_1..x_l) the probability that a round from its beginning
accepts at least these tokens, P their probability under the target, and r_l = A/P.  By
losslessness, given the text, the round accepts exactly l tokens and the text continues as it does
with probability r_l - r_(l+1).  So rounds renew along the text: their starts are a Markov chain
with known transition probabilities, and no round has to be run.  A/P depends only on the
distributions along the text for every algorithm whose accepted mass does: block verification,
selections of a path by scores, top-down rules, traversal.
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
    """A text decoded from the target, with the distributions of both models at each token.

    Parameters
    ----------
    tokens : ndarray of int64, shape (T,)
        Tokens sampled from the target, each from the row of `targets` at its position.
    targets, drafts : ndarray, shape (T, V)
        Next-token distributions p and q of target and draft; rows sum to one.

    Raises
    ------
    InvalidInputError
        If shapes or types are inconsistent, or a token has probability 0 under the target, so that
        the target cannot have decoded the text.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # the draft equals the target
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
                "targets and drafts must have the same shape, with one row per token, got "
                f"{tokens.size} tokens, targets {targets.shape} and drafts {drafts.shape}"
            )
        zeros = np.flatnonzero(targets[np.arange(tokens.size), tokens] <= 0.0)
        if zeros.size:
            raise InvalidInputError(
                f"token {tokens[zeros[0]]} at position {zeros[0]} has probability 0 under the "
                "target: give text decoded from the target with the same sampling"
            )
        for name, value in (("tokens", tokens), ("targets", targets), ("drafts", drafts)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of tokens T."""
        return int(self.tokens.size)

    @cached_property
    def places(self) -> list[tuple[int, FloatArray, FloatArray]]:
        """Token, p and q at each position, over the relevant tokens.

        Only the total mass p of tokens that are never proposed is relevant, so these are merged
        into the last token.  A tree with more certain children than the draft has tokens proposes
        tokens with q = 0 in the order of their ids: `MOST_PROPOSED` of these are kept.
        """
        return list(map(_merge_rest, self.tokens.tolist(), self.targets, self.drafts))

    def starts(self, length: int) -> int:
        """Return the number of positions where a round of `length` drafted tokens can start.

        Raises
        ------
        InvalidInputError
            If there is no such position.
        """
        starts = len(self) - whole_number(length, "length")
        if starts < 1:
            raise InvalidInputError(
                f"the text must have at least {length + 1} tokens (preferably ten times that) for "
                f"rounds of up to {length} drafted tokens, got {len(self)}"
            )
        return starts


MOST_PROPOSED = 16
"""Number of tokens with q = 0, in the order of their ids, that a tree may propose."""


def _proposed(drafted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask of tokens that may be proposed, given the mask of tokens with q > 0."""
    kept = drafted.copy()
    kept[np.flatnonzero(~drafted)[:MOST_PROPOSED]] = True
    return kept


def _merge_rest(token: int, p: FloatArray, q: FloatArray) -> tuple[int, FloatArray, FloatArray]:
    """Merge the tokens of one position that are neither proposed nor written."""
    kept = _proposed(q > 0.0)
    kept[token] = True
    if np.count_nonzero(~kept) < 2:
        return token, p, q
    rest = p[~kept].sum()
    return int(kept[:token].sum()), np.append(p[kept], rest), np.append(q[kept], 0.0)


def without_undrafted(text: WrittenText) -> WrittenText:
    """Return the text over fewer tokens: tokens that are never proposed or written are merged.

    Acceptance depends only on the target's total mass of these tokens; see `WrittenText.places`.

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
    """Expected tokens and target calls of texts.

    Attributes
    ----------
    tokens, calls : tuple of float
        For each text: expected tokens of the rounds that start in it, and their expected number.

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
        """Tokens per target call."""
        return float(sum(self.tokens) / sum(self.calls))

    @property
    def error(self) -> float:
        """Standard error of the efficiency over independent texts; NaN for a single text."""
        n = len(self.tokens)
        if n < 2:
            return float("nan")
        tokens, calls = np.array(self.tokens), np.array(self.calls)
        influence = (tokens - self.efficiency * calls) / calls.sum()
        return float(np.sqrt(n / (n - 1) * np.sum(influence**2)))

    @classmethod
    def of(cls, profiles: Iterable[FloatArray]) -> Renewal:
        """Apply `renew` to the profile of each text."""
        found = [renew(profile) for profile in profiles]
        return cls(tuple(tokens for tokens, _ in found), tuple(calls for _, calls in found))


def renew(profile: FloatArray) -> tuple[float, float]:
    """Compute expected tokens and calls of rounds in a text; the first starts at its first token.

    Parameters
    ----------
    profile : ndarray, shape (starts, L + 1)
        r_l = A/P of the next l tokens at each start, with 1 at l = 0; rows are decreasing.

    Returns
    -------
    tokens, calls : float

    Notes
    -----
    Exact; unbiased if the rows are independent unbiased estimates.  O(starts L).
    """
    starts, width = profile.shape
    exactly = profile - np.append(profile[:, 1:], np.zeros((starts, 1)), axis=1)
    visits = np.zeros(starts + width)
    visits[0] = 1.0
    for place in range(starts):
        visits[place + 1 : place + 1 + width] += visits[place] * exactly[place]
    rounds = visits[:starts]
    return float(rounds @ profile.sum(axis=1)), float(rounds.sum())
