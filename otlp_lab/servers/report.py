"""Report of an audit of a server."""

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
    """Result of `otlp_lab.servers.audit_server`.

    Attributes
    ----------
    server, baseline : str
        Names of both sides.
    prompts : int
        Number of prompts.
    pairs, budget : int
        Number of collected pairs of texts, one from each side, and its maximum.
    log10_wealth : float
        Decimal logarithm of the maximum wealth.  Its negative is the decimal logarithm of a
        p-value that is valid for any stopping time.
    false_alarm_rate : float
        Probability that a server with the distribution of the baseline is rejected.
    tokens : int
        Number of tokens reported by both sides.
    seconds : float
        Seconds of this run.
    detectable : mapping of str to float
        Smallest total variation by shape of the bias that was found in 9 of 10 runs with this
        number of pairs when planted in the collected texts; 1 if no bias was found.  Empty if the
        audit found a difference.
    furthest : tuple of tuples
        First words with the largest differences in standard deviations: the number of the prompt,
        the word, and its shares in the texts of server and baseline.
    stopped : str
        Reason why the audit stopped before the budget without finding a difference; else empty.
    earlier : int
        Number of pairs from an earlier run.
    kept : str
        Time and place of the earlier pairs, as far as known.

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
        """`TEXTS_DIFFER` if the wealth reached 1 / `false_alarm_rate`, else `NOT_REJECTED`."""
        found = self.log10_wealth >= -math.log10(self.false_alarm_rate)
        return Verdict.TEXTS_DIFFER if found else Verdict.NOT_REJECTED

    @property
    def passed(self) -> bool:
        """Whether no difference was found."""
        return self.verdict.passed

    def __str__(self) -> str:
        """Return a readable summary."""
        rate = self.false_alarm_rate
        lines = [
            f"{self.verdict.name}: {self.verdict.value}",
            f"Server: {self.server}; baseline: {self.baseline}; {self.prompts} prompts.",
            f"{self.pairs:,} of {self.budget:,} pairs of texts, {self.tokens:,} tokens, "
            f"{self.seconds:.0f} s" + (f": {self.stopped}." if self.stopped else "."),
            *(
                [f"{self.earlier:,} of the pairs are {self.kept or 'of an earlier run'}."]
                * bool(self.earlier)
            ),
            f"Maximum wealth of the bets: 10^{self.log10_wealth:.2f}; for equal distributions it "
            f"reaches 10^{-math.log10(rate):.3g} with probability at most {rate:.0e}, for any "
            "stopping time.",
        ]
        if not self.passed:
            apart = [
                f"{word!r} begins {mine:.3g} of the server's texts after prompt {prompt} and "
                f"{other:.3g} of the baseline's"
                for prompt, word, mine, other in self.furthest
            ]
            lines.append(f"Largest differences: {'; '.join(apart)}.")
        for shape, size in self.detectable.items():
            found = f"A total variation of {size:g} {shape} would have been found: it was found in"
            runs = f"{FOUND} of {RUNS} runs on the collected texts."
            lines.append(
                f"{found} {runs}"
                if size < 1.0
                else f"A bias {shape} would not be found reliably: request more texts."
            )
        return "\n".join(lines)


def furthest_apart(bets: Bets, count: int = 5) -> tuple[Apart, ...]:
    """Return the first words with the largest differences; prompts are counted from 1."""
    found = list[tuple[float, Apart]]()
    for prompt, top in bets.bettors[0].prompts.items():
        pairs = sum(first.server for first in top.after.values())
        for word, first in top.after.items():
            mine, other = first.server, first.baseline
            deviations = abs(mine - other) / math.sqrt(mine + other)
            found.append((deviations, (prompt + 1, word, mine / pairs, other / pairs)))
    return tuple(apart for _, apart in sorted(found, reverse=True)[:count])
