"""Streams of texts that are visibly not independent, at a rate of false alarms that is known.

A server may answer from a cache: of its own texts, of a prompt's, or of the other side's.  The bets
of an audit are fair only where texts are drawn anew.  So before anything is said of two servers,
three kinds of trouble are looked for; each has an e-value, whose mean is at most 1 if all texts are
independent and those of a prompt and a side follow one law, whatever it is:

- a side repeats the text that it gave before to the same prompt (`copied`),
- both sides of a pair give one text (`copied`),
- each side gives one text of its own to a prompt, again and again (`one_each`).

An e-value reaches x with probability 1/x at most, by Markov's inequality.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from otlp.errors import InvalidInputError
from otlp_lab.servers.betting import Pieces

FALSE_ALARMS = 1e-6
"""Probability that streams of independent texts are refused, whenever an audit stops."""

SUSPICIONS = 1e-2
"""Probability that more of them are asked for than else would be."""

SHARES = (0.05, 0.3, 0.9)
"""Of texts that are copies, as the bets expect."""

WAY_OUT = (
    "ask at a temperature above 0 and without a fixed seed, turn caches of answers off, and take "
    "more tokens or other prompts"
)


def check_independent(texts: Sequence[Sequence[Pieces]]) -> bool:
    """Refuse texts that are visibly not independent, by the name of what is seen.

    Parameters
    ----------
    texts : sequence of sequences of tuple of str
        Those of each prompt in the order they came, the server's and the baseline's in turn.

    Returns
    -------
    bool
        Whether they are above suspicion; if not, more of them will tell.

    Raises
    ------
    InvalidInputError
        With probability `FALSE_ALARMS` at most where texts are independent, or where each side
        gives one text to every prompt.

    Notes
    -----
    After N pairs one of three e-values must reach 3 N (N + 1) / `FALSE_ALARMS`: as the sum of
    1 / (N (N + 1)) over N is 1, the rate holds for an audit that may stop at any time, too.
    O(number of texts).
    """
    sides = [own[side::2] for own in texts for side in (0, 1) if len(own) > 2]
    if not sides:
        return True
    if all(len(set(side)) == 1 for side in sides):
        raise InvalidInputError(f"each side gives the same text again and again: {WAY_OUT}")
    found = {
        "the texts of a pair are the same far more often than the laws of the two sides allow": [
            copied(own[0::2], own[1::2]) for own in texts
        ],
        "a side repeats its text of before far more often than its law allows": [
            copied(side[:-1], side[1:]) for side in sides
        ],
        "each side gives one text of its own to a prompt, again and again": [
            one_each(own[0::2], own[1::2]) for own in texts
        ],
    }
    pairs = sum(map(len, texts)) // 2
    what, most = max(((what, together(logs)) for what, logs in found.items()), key=itemgetter(1))
    most -= math.log(3 * pairs * (pairs + 1))
    if most >= -math.log(FALSE_ALARMS):
        raise InvalidInputError(f"texts are not independent: {what}: {WAY_OUT}")
    return most < -math.log(SUSPICIONS)


def copied(shown: Sequence[Pieces], given: Sequence[Pieces]) -> float:
    """The logarithm of an e-value against independence: how often `given` is what was `shown`.

    Notes
    -----
    Given which texts there are in `given`, any order of them is as likely as any other, whatever
    their law, if they are drawn independently of each other and of `shown`, or if `shown` are the
    same texts one place earlier.  Of those still to come a known share c are the text that is
    shown now, so a bettor who expects a copy with probability c + s (1 - c) multiplies the wealth
    by (c + s (1 - c)) / c at a copy and by 1 - s otherwise, which is 1 in
    the mean, and does not bet where c = 0.  The mean over `SHARES`.
    """
    left, logs = Counter(given), np.zeros(len(SHARES))
    shares = np.array(SHARES)
    for at, (before, text) in enumerate(zip(shown, given, strict=True)):
        if chance := left[before] / (len(given) - at):
            copy = shares * (1.0 / chance - 1.0)
            logs += np.log1p(copy if text == before else -shares)
        left[text] -= 1
    return float(np.logaddexp.reduce(logs)) - math.log(len(SHARES))


def one_each(server: Sequence[Pieces], baseline: Sequence[Pieces]) -> float:
    """The logarithm of an e-value against one law: each side gave one text, and they differ.

    Notes
    -----
    Two texts of probabilities a and b come so in k pairs with probability (a b)^k, at most
    a b / 4^(k - 1); summed over all two different texts of one law that is at most 4^(1 - k).
    """
    one, other = set(server), set(baseline)
    if len(one) == len(other) == 1 and one != other:
        return (len(server) - 1) * math.log(4.0)
    return -math.inf


def together(logs: Sequence[float]) -> float:
    """The logarithm of one e-value of many independent ones: of some of them, or of any one.

    The mean of two: of their mean, and of the product of (1 + e) / 2.
    """
    mean = float(np.logaddexp.reduce(logs)) - math.log(len(logs))
    product = sum(float(np.logaddexp(log, 0.0)) - math.log(2.0) for log in logs)
    return float(np.logaddexp(mean, product)) - math.log(2.0)
