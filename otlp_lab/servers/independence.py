"""Tests of the independence of texts, with a known false-alarm rate.

A server may answer from a cache of its own texts, of a prompt's texts, or of the other side's
texts.  The bets of an audit are fair only if texts are independent.  So the audit tests for three
kinds of dependence first.  Each has an e-value, whose mean is at most 1 if all texts are
independent and the texts of a prompt and a side have one distribution, whatever it is:

- a side repeats its previous text for the same prompt (`copied`),
- both sides of a pair produce the same text (`copied`),
- each side always produces its own single text for a prompt (`one_each`).

An e-value reaches x with probability at most 1/x, by Markov's inequality.
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
"""Probability that independent texts are rejected, for any stopping time of an audit."""

SUSPICIONS = 1e-2
"""Probability that more independent texts are requested than necessary."""

SHARES = (0.05, 0.3, 0.9)
"""Shares of copies among the texts that the bets assume."""

WAY_OUT = (
    "ask at a temperature above 0 and without a fixed seed, turn off caches of answers, and use "
    "more tokens or other prompts"
)


def check_independent(texts: Sequence[Sequence[Pieces]]) -> bool:
    """Raise InvalidInputError if texts are evidently not independent.

    Parameters
    ----------
    texts : sequence of sequences of tuple of str
        Texts of each prompt in chronological order, server and baseline in turn.

    Returns
    -------
    bool
        True if there is no suspicion of dependence; False if more texts are needed to decide.

    Raises
    ------
    InvalidInputError
        If texts are dependent; for independent texts with probability at most `FALSE_ALARMS`.
        Also if each side has only one distinct text for each prompt.

    Notes
    -----
    After N pairs one of three e-values must reach 3 N (N + 1) / `FALSE_ALARMS`.  As the sum of
    1 / (N (N + 1)) over N is 1, the rate holds for any stopping time.  O(number of texts).
    """
    sides = [own[side::2] for own in texts for side in (0, 1) if len(own) > 2]
    if not sides:
        return True
    if all(len(set(side)) == 1 for side in sides):
        raise InvalidInputError(f"each side returns the same text again and again: {WAY_OUT}")
    found = {
        "the texts of a pair are the same far more often than the laws of both sides allow": [
            copied(own[0::2], own[1::2]) for own in texts
        ],
        "a side repeats its previous text far more often than its law allows": [
            copied(side[:-1], side[1:]) for side in sides
        ],
        "each side returns its own single text for a prompt, again and again": [
            one_each(own[0::2], own[1::2]) for own in texts
        ],
    }
    pairs = sum(map(len, texts)) // 2
    what, most = max(((what, combine(logs)) for what, logs in found.items()), key=itemgetter(1))
    most -= math.log(3 * pairs * (pairs + 1))
    if most >= -math.log(FALSE_ALARMS):
        raise InvalidInputError(f"texts are not independent: {what}: {WAY_OUT}")
    return most < -math.log(SUSPICIONS)


def copied(shown: Sequence[Pieces], given: Sequence[Pieces]) -> float:
    """Return the log of an e-value against independence, from copies of `shown` in `given`.

    Notes
    -----
    If the texts `given` are i.i.d. and independent of `shown`, or if `shown` are the same texts
    shifted by one, then all orders of `given` have the same probability given the multiset of
    texts.  A known share c of the remaining texts equals the current text of `shown`.  A bettor who
    expects a copy with probability c + s (1 - c) multiplies the wealth by (c + s (1 - c)) / c at a
    copy and by 1 - s otherwise, with mean 1, and does not bet if c = 0.  The e-value is the mean
    over `SHARES`.
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
    """Return the log of an e-value for sides that each return a single text, which differ.

    Notes
    -----
    Under one distribution, k such pairs of two texts with probabilities a and b have probability
    (a b)^k, at most a b / 4^(k - 1).  The sum over all pairs of different texts is at most
    4^(1 - k).
    """
    one, other = set(server), set(baseline)
    if len(one) == len(other) == 1 and one != other:
        return (len(server) - 1) * math.log(4.0)
    return -math.inf


def combine(logs: Sequence[float]) -> float:
    """Return the log of an e-value combined from independent e-values.

    The combination is the mean of two e-values: the mean of all e, which is powerful if one e is
    large, and the product of (1 + e) / 2, which is powerful if several are large.
    """
    mean = float(np.logaddexp.reduce(logs)) - math.log(len(logs))
    product = sum(float(np.logaddexp(log, 0.0)) - math.log(2.0) for log in logs)
    return float(np.logaddexp(mean, product)) - math.log(2.0)
