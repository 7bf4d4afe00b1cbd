"""A sequential test of two samples of texts, by betting: it may stop at any time.

In every pair of texts, one from each side, somebody bets which side gave which.  If both sides
follow one law, a pair is as likely the other way round, whatever came before: then no bet can win
in the mean, the wealth of who starts with 1 is a martingale, and by Ville's inequality it ever
reaches 1/a with probability a at most.  The odds are those of the pairs before: a text's words lead
down a tree of beginnings, which know what share of their texts the server gave.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from otlp_lab.servers.completions import Completion

_PIECE = re.compile(r"\s*(?:\w{1,8}|[^\w\s])|\s+$")

Pieces = tuple[str, ...]


def pieces(completion: Completion) -> Pieces:
    """Cut a text into words of at most 8 letters and signs; how it ended is the last piece."""
    ended = () if completion.finish == "length" else (f"<{completion.finish}>",)
    return (*_PIECE.findall(completion.text), *ended) or ("",)


@dataclass(slots=True)
class Beginning:
    """The texts of a prompt with one beginning: how many each side gave, and how they go on.

    Attributes
    ----------
    odd : float
        Probability that the server has a share of its own of them, not that of the beginning a
        word shorter.
    """

    odd: float
    server: int = 0
    baseline: int = 0
    after: dict[str, Beginning] = field(default_factory=dict)


@dataclass(frozen=True)
class Bettor:
    """Who bets by the server's share of the texts with one beginning.

    Attributes
    ----------
    pairs : float
        So many pairs of texts the share of the beginning a word shorter counts for.
    odd : float
        `Beginning.odd` before any text.
    prompts : mapping of int to Beginning
        What is known of the texts of each prompt.
    """

    pairs: float
    odd: float
    prompts: defaultdict[int, Beginning] = field(
        default_factory=lambda: defaultdict(lambda: Beginning(1.0))
    )

    def share(self, prompt: int, text: Pieces) -> float:
        """The server's share of such texts."""
        at, share = self.prompts[prompt], 0.5
        for piece in text:
            if piece not in at.after:
                break
            at = at.after[piece]
            share += at.odd * (self._own(at, share) - share)
        return share

    def learn(self, prompt: int, text: Pieces, server: bool) -> None:
        """Count a text of a side; what is odd is learnt by Bayes' rule."""
        at, share = self.prompts[prompt], 0.5
        for piece in text:
            at = at.after.setdefault(piece, Beginning(self.odd))
            own = self._own(at, share)
            share += at.odd * (own - share)
            bayes = own / share if server else (1.0 - own) / (1.0 - share)
            at.odd = min(1.0, at.odd * bayes)  # beyond one by rounding, and shares would be, too
            at.server += server
            at.baseline += not server

    def _own(self, at: Beginning, shorter: float) -> float:
        return (at.server + 2.0 * self.pairs * shorter) / (
            at.server + at.baseline + 2.0 * self.pairs
        )


class Bets:
    """Wealth won by betting on the order of pairs, by two who share it.

    One expects a few large biases, the other many small ones.  The mean of martingales is one, and
    grows nearly as the best of them.

    Attributes
    ----------
    log_wealth, most : float
        The natural logarithm of what they have together now, and of the most they had; they began
        with 1.
    """

    def __init__(self) -> None:
        self.bettors = Bettor(1.0, 0.05), Bettor(100.0, 1.0)
        self.log_wealth = self.most = 0.0
        self._logs = np.full(2, -math.log(2.0))

    def bet(self, prompt: int, server: Pieces, baseline: Pieces) -> None:
        """Bet on a pair of texts, see which way round it is, and learn it.

        The factor of each bettor, and what it had been the other way round, add up to 2.
        """
        for at, bettor in enumerate(self.bettors):
            mine, other = bettor.share(prompt, server), bettor.share(prompt, baseline)
            right, wrong = mine * (1.0 - other), other * (1.0 - mine)
            self._logs[at] += math.log(2.0 * right / (right + wrong))
            bettor.learn(prompt, server, True)
            bettor.learn(prompt, baseline, False)
        self.log_wealth = float(np.logaddexp.reduce(self._logs))
        self.most = max(self.most, self.log_wealth)
