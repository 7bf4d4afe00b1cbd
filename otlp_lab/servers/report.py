"""What an audit of a server found, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from otlp.auditing.report import Verdict
from otlp_lab.servers.betting import Bets
from otlp_lab.servers.power import FOUND, RUNS

Apart: TypeAlias = "tuple[int, str, float, float]"


@dataclass(frozen=True)
class ServerReport:
    """What `otlp_lab.servers.audit_server` found.

    Attributes
    ----------
    server, baseline : str
        What was asked.
    prompts, pairs, budget : int
        Prompts; pairs of texts, one from each side, that were taken, and that were to be.
    log10_wealth : float
        The decimal logarithm of the most that was won by betting: its negative is that of a
        p-value which holds whenever one stops.
    false_alarm_rate : float
        Probability that a server is rejected whose texts follow the baseline's.
    tokens : int
        Tokens that both sides gave, where they said so.
    seconds : float
        Of this run.
    detectable : mapping of str to float
        By the shape of a bias: the smallest total variation that pairs of this number would have
        found in 9 of 10 runs, planted in the texts that came; 1 where none was. Empty if one was
        found, or nothing was to be judged.
    furthest : tuple of tuples
        First words that are furthest off, in standard deviations: the number of the prompt, the
        word, and the shares of the server's and of the baseline's texts.
    stopped : str
        Why it stopped before the budget, if not by finding; empty if it did not.
    earlier : int
        Pairs of them that an earlier run had kept.
    kept : str
        When and where these were kept, as far as it is known.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab import servers
    >>> rng = np.random.default_rng(0)
    >>> draw = lambda prompt: servers.Completion(str(rng.integers(9)))
    >>> report = servers.audit_server(draw, servers.planted(draw, 0.4, rng), ["Count:"], pairs=900)
    >>> report.verdict.name, report.pairs < 900
    ('TEXTS_DIFFER', True)
    """

    server: str
    baseline: str
    prompts: int
    pairs: int
    budget: int
    log10_wealth: float
    false_alarm_rate: float
    tokens: int
    seconds: float
    detectable: Mapping[str, float]
    furthest: tuple[Apart, ...]
    stopped: str
    earlier: int = 0
    kept: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the bets won as much as equal laws hardly ever let them."""
        found = self.log10_wealth >= -math.log10(self.false_alarm_rate)
        return Verdict.TEXTS_DIFFER if found else Verdict.NOT_REJECTED

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return self.verdict.passed

    def __str__(self) -> str:
        """Say what was asked and what was found, in plain words."""
        rate = self.false_alarm_rate
        lines = [
            f"{self.verdict.name}: {self.verdict.value}",
            f"Asked: {self.server}; baseline: {self.baseline}; {self.prompts} prompts.",
            f"{self.pairs:,} of {self.budget:,} pairs of texts, {self.tokens:,} tokens, "
            f"{self.seconds:.0f} s" + (f": {self.stopped}." if self.stopped else "."),
            *(
                [f"{self.earlier:,} of them are {self.kept or 'of an earlier run'}."]
                * bool(self.earlier)
            ),
            f"Betting won 10^{self.log10_wealth:.2f} at most; if the laws are one, "
            f"10^{-math.log10(rate):.3g} is won with probability {rate:.0e} at most, whenever one "
            "stops.",
        ]
        if not self.passed:
            apart = [
                f"{word!r} begins {mine:.3g} of the server's texts after prompt {prompt} and "
                f"{other:.3g} of the baseline's"
                for prompt, word, mine, other in self.furthest
            ]
            lines.append(f"Furthest off: {'; '.join(apart)}.")
        for shape, size in self.detectable.items():
            found = f"A total variation of {size:g} {shape} would have been found: it was in"
            runs = f"{FOUND} of {RUNS} runs on the texts that came."
            lines.append(
                f"{found} {runs}"
                if size < 1.0
                else f"No bias {shape} is sure to be found: take more texts."
            )
        return "\n".join(lines)


def furthest_apart(bets: Bets, count: int = 5) -> tuple[Apart, ...]:
    """The first words whose numbers are furthest apart; prompts are counted from 1."""
    found = list[tuple[float, Apart]]()
    for prompt, top in bets.bettors[0].prompts.items():
        pairs = sum(first.server for first in top.after.values())
        for word, first in top.after.items():
            mine, other = first.server, first.baseline
            deviations = abs(mine - other) / math.sqrt(mine + other)
            found.append((deviations, (prompt + 1, word, mine / pairs, other / pairs)))
    return tuple(apart for _, apart in sorted(found, reverse=True)[:count])
