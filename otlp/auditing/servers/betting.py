"""A sequential test of two samples of texts, by betting: it may stop at any time.

In every pair of texts, one from each side, somebody bets which side gave which.  If both sides
follow one law, a pair is as likely the other way round, whatever came before: then no bet can win
in the mean, the wealth of who starts with 1 is a martingale, and by Ville's inequality it ever
reaches 1/a with probability a at most.  The odds are those of the pairs before: a text's words lead
down a tree of beginnings, which know what share of their texts the server gave.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from otlp.auditing.servers.completions import Completion
from otlp.distribution import FloatArray


class Bettor(NamedTuple):
    """What somebody expects of the server's share of the texts with one beginning.

    Attributes
    ----------
    pairs : float
        So many pairs of texts the share of the beginning a word shorter counts for.
    odd : float
        Probability, before any text, that it has a share of its own at all.
    """

    pairs: float
    odd: float


BETTORS = (Bettor(1.0, 0.05), Bettor(100.0, 1.0))
"""One that expects a few large biases, and one that expects many small ones."""

EVEN = [0.5] * len(BETTORS)

_PIECE = re.compile(r"\s*(?:\w{1,8}|[^\w\s])|\s+$")

Pieces = tuple[str, ...]


def pieces(completion: Completion) -> Pieces:
    """Cut a text into words of at most 8 letters and signs; how it ended is the last piece."""
    ended = () if completion.finish == "length" else (f"<{completion.finish}>",)
    return (*_PIECE.findall(completion.text), *ended)


@dataclass(slots=True)
class Beginning:
    """The texts of a prompt with one beginning: how many each side gave, and how they go on."""

    server: int = 0
    baseline: int = 0
    odd: list[float] = field(default_factory=lambda: [bettor.odd for bettor in BETTORS])
    after: dict[str, Beginning] = field(default_factory=dict)

    def shares(self, above: list[float]) -> list[float]:
        """The server's share, as each bettor has it, from those of the beginning a word shorter."""
        own = self._own(above)
        return [w * s + (1.0 - w) * a for w, s, a in zip(self.odd, own, above, strict=True)]

    def learn(self, above: list[float], server: bool) -> list[float]:
        """Count a text; returns the shares of before.

        Whether the beginning has a share of its own is learnt by Bayes' rule.
        """
        own, shares = self._own(above), self.shares(above)
        if server:
            self.odd = [w * s / t for w, s, t in zip(self.odd, own, shares, strict=True)]
        else:
            self.odd = [
                w * (1.0 - s) / (1.0 - t) for w, s, t in zip(self.odd, own, shares, strict=True)
            ]
        self.server += server
        self.baseline += not server
        return shares

    def _own(self, above: list[float]) -> list[float]:
        both = self.server + self.baseline
        return [
            (self.server + 2.0 * bettor.pairs * share) / (both + 2.0 * bettor.pairs)
            for bettor, share in zip(BETTORS, above, strict=True)
        ]


class Bets:
    """Wealth won by betting on the order of pairs.

    The bettors share it: the mean of martingales is one, and grows nearly as the best of them.

    Attributes
    ----------
    beginnings : mapping of int to Beginning
        Of each prompt: all its texts, from which the bets go down.
    log_wealth, most : float
        The natural logarithm of what the bettors have together now, and of the most they had; they
        began with 1.
    """

    def __init__(self) -> None:
        self.beginnings: defaultdict[int, Beginning] = defaultdict(Beginning)
        self.log_wealth = self.most = 0.0
        self._logs = np.full(len(BETTORS), -np.log(len(BETTORS)))

    def bet(self, prompt: int, server: Pieces, baseline: Pieces) -> None:
        """Bet on a pair of texts, see which way round it is, and learn it.

        The factor of each bettor, and what it had been the other way round, add up to 2.
        """
        if server != baseline:
            mine, others = self._shares(prompt, server), self._shares(prompt, baseline)
            right = mine * (1.0 - others)
            self._logs += np.log(2.0 * right / (right + others * (1.0 - mine)))
            self.log_wealth = float(np.logaddexp.reduce(self._logs))
            self.most = max(self.most, self.log_wealth)
        for text, side in ((server, True), (baseline, False)):
            beginning, shares = self.beginnings[prompt], EVEN
            for piece in text:
                beginning = beginning.after.setdefault(piece, Beginning())
                shares = beginning.learn(shares, side)

    def _shares(self, prompt: int, text: Pieces) -> FloatArray:
        """The server's share of such texts, as each bettor has it."""
        beginning, shares = self.beginnings[prompt], EVEN
        for piece in text:
            if piece not in beginning.after:
                break
            beginning = beginning.after[piece]
            shares = beginning.shares(shares)
        return np.array(shares)
