"""Sequential two-sample test of texts by betting, which may stop at any time.

For every pair of texts, one from each side, a bettor bets on which side produced which text.  If
both sides have the same distribution, the swapped pair has the same probability given the past.
Then no bet has a positive expected gain, the wealth starting at 1 is a martingale, and by Ville's
inequality the probability that it ever reaches 1/a is at most a.  Bets are learnt from earlier
pairs: the words of a text lead down a tree of prefixes, which count the texts of each side.
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
    """Split a text into words of at most 8 letters and signs; the last piece is its end."""
    ended = () if completion.finish == "length" else (f"<{completion.finish}>",)
    return (*_PIECE.findall(completion.text), *ended) or ("",)


@dataclass(slots=True)
class Prefix:
    """Numbers of texts of a prompt with one prefix from each side, and longer prefixes.

    Attributes
    ----------
    odd : float
        Probability that the server's share of these texts differs from its share for the prefix
        without the last word.
    """

    odd: float
    server: int = 0
    baseline: int = 0
    after: dict[str, Prefix] = field(default_factory=dict)


@dataclass(frozen=True)
class Bettor:
    """Bettor that uses the server's share of the texts with one prefix.

    Attributes
    ----------
    pairs : float
        Weight of the share of the prefix without the last word, in pairs of texts.
    odd : float
        Initial value of `Prefix.odd`.
    prompts : mapping of int to Prefix
        Counts of the texts of each prompt.
    """

    pairs: float
    odd: float
    prompts: defaultdict[int, Prefix] = field(
        default_factory=lambda: defaultdict(lambda: Prefix(1.0))
    )

    def share(self, prompt: int, text: Pieces) -> float:
        """Estimate the server's share of texts equal to `text`."""
        at, share = self.prompts[prompt], 0.5
        for piece in text:
            if piece not in at.after:
                break
            at = at.after[piece]
            share += at.odd * (self._own(at, share) - share)
        return share

    def learn(self, prompt: int, text: Pieces, server: bool) -> None:
        """Count a text of a side, and update `odd` by Bayes' rule."""
        at, share = self.prompts[prompt], 0.5
        for piece in text:
            at = at.after.setdefault(piece, Prefix(self.odd))
            own = self._own(at, share)
            share += at.odd * (own - share)
            bayes = own / share if server else (1.0 - own) / (1.0 - share)
            at.odd = min(1.0, at.odd * bayes)  # rounding must not lead to shares above 1
            at.server += server
            at.baseline += not server

    def _own(self, at: Prefix, shorter: float) -> float:
        return (at.server + 2.0 * self.pairs * shorter) / (
            at.server + at.baseline + 2.0 * self.pairs
        )


class Bets:
    """Mean wealth of two bettors on the order of pairs.

    One bettor expects a few large biases, the other many small biases.  The mean of martingales is
    a martingale, and grows almost as fast as the best of them.

    Attributes
    ----------
    log_wealth, most : float
        Natural logarithm of the current wealth and of the maximum wealth; the wealth starts at 1.
    """

    def __init__(self) -> None:
        self.bettors = Bettor(1.0, 0.05), Bettor(100.0, 1.0)
        self.log_wealth = self.most = 0.0
        self._logs = np.full(2, -math.log(2.0))

    def bet(self, prompt: int, server: Pieces, baseline: Pieces) -> None:
        """Bet on a pair of texts, update the wealth, and learn the pair.

        The factor of a bettor and its factor for the swapped pair add up to 2.
        """
        for at, bettor in enumerate(self.bettors):
            mine, other = bettor.share(prompt, server), bettor.share(prompt, baseline)
            right, wrong = mine * (1.0 - other), other * (1.0 - mine)
            self._logs[at] += math.log(2.0 * right / (right + wrong))
            bettor.learn(prompt, server, True)
            bettor.learn(prompt, baseline, False)
        self.log_wealth = float(np.logaddexp.reduce(self._logs))
        self.most = max(self.most, self.log_wealth)
