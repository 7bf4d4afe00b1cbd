"""What the audit of a round found, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.gtest import GTest
from otlp.auditing.report import Verdict, describe_power, describe_test
from otlp.distribution import FloatArray


@dataclass(frozen=True, eq=False)
class RoundReport:
    """What `otlp.audit_rounds` found.

    Attributes
    ----------
    rule, drafted : str
        What was tested: the rule, and how its drafts are drawn.
    method : str
        "enumeration" (exact) or "sampling".
    target, output : ndarray, shape (V, ..., V)
        Law of a text of L + 1 tokens: the target's, and that of the rule's output, completed by
        the target; exact or as sampled.  Failures are missing from it.
    tokens : float
        Mean number of tokens that a round gives.
    total_variation : float
        Between the two laws, a failure counting as another text; of the sample, if sampled, and
        then too large by the sampling noise: see `interval`.
    interval : tuple of float
        Bounds on the total variation, at `confidence` if sampled.
    tolerance : float
        Largest exact total variation that is called lossless.
    failures : mapping of str to float
        What went wrong, and its probability or share of the samples.
    drafts : DraftCheck or None
        Whether the sampler's drafts follow the declared ones; None without a sampler.
    size : int
        Paths followed, or rounds sampled.
    why_sampled : str
        Why the exact law was not computed; empty if it was.
    confidence, false_alarm_rate : float
        1 and 0 if exact.
    test : GTest or None
        The G-test of the completed texts; None if exact.
    repetitions : int
        How often a path was run again, always with the same result; 0 if sampled.

    Examples
    --------
    >>> import otlp
    >>> from otlp.auditing import DraftedPaths
    >>> target, draft = [[0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]]], [[0.8, 0.2]]
    >>> def trusting(draft_tokens, p, q, rng):
    ...     return [draft_tokens[0, 0], rng.choice(2, p=p[0, 1])]
    >>> report = otlp.audit_rounds(trusting, target, draft, DraftedPaths(1, 1))
    >>> report.verdict.name, round(report.total_variation, 6), report.tokens
    ('NOT_LOSSLESS', 0.3, 2.0)
    """

    rule: str
    drafted: str
    method: str
    target: FloatArray
    output: FloatArray
    tokens: float
    total_variation: float
    interval: tuple[float, float]
    tolerance: float
    failures: Mapping[str, float]
    drafts: DraftCheck | None
    size: int
    why_sampled: str = ""
    confidence: float = 1.0
    false_alarm_rate: float = 0.0
    test: GTest | None = None
    repetitions: int = 0

    @property
    def verdict(self) -> Verdict:
        """The first thing that is wrong, in the order in which one mends them."""
        exact = self.test is None
        if sum(self.failures.values()) > (self.tolerance if exact else 0.0):
            return Verdict.RULE_FAILED
        if self.drafts is not None and not self.drafts.agrees:
            return Verdict.DRAFTS_DIFFER
        if self.interval[1] > self.tolerance if self.test is None else self.test.rejected:
            return Verdict.NOT_LOSSLESS
        return Verdict.LOSSLESS if exact else Verdict.NOT_REJECTED

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return self.verdict.passed

    def worst_texts(self, count: int = 3) -> list[tuple[tuple[int, ...], float, float]]:
        """The texts that are furthest off: (tokens, target, output), the worst first."""
        apart = np.abs(self.output - self.target)
        if self.test is not None:
            apart = apart / np.sqrt(np.maximum(self.target, 1.0 / self.size))
        worst = np.argsort(-apart, axis=None, kind="stable")[:count]
        texts = [tuple(map(int, np.unravel_index(at, apart.shape))) for at in worst]
        return [
            (text, float(self.target[text]), float(self.output[text]))
            for text in texts
            if apart[text] > 1e-3 * apart[texts[0]]
        ]

    def __str__(self) -> str:
        """Say what was tested and what was found, in plain words."""
        size, length = self.target.shape[0], self.target.ndim
        lines = [
            f"{self.verdict.name}: {self.verdict.value}",
            f"Tested: {self.rule}, on {self.drafted}, over {size} tokens; outputs are completed "
            f"by the target to {length} tokens.",
        ]
        kind = "probability" if self.test is None else "share of rounds"
        lines += [f"  {what} ({kind} {chance:.3g})" for what, chance in self.failures.items()]
        lines += self._distance()
        lines.append(f"Mean tokens a round {self.tokens:.4g}.")
        if not self.passed:
            worst = (
                f"text {list(text)} has {output:.4g} instead of {target:.4g}"
                for text, target, output in self.worst_texts()
            )
            lines.append("Furthest off: " + "; ".join(worst) + ".")
        if self.drafts is not None:
            lines.append(str(self.drafts))
        return "\n".join(lines)

    def _distance(self) -> list[str]:
        low, high = self.interval
        if self.test is None:
            return [
                f"Total variation from the target {self.total_variation:.3g}, exact by "
                f"enumeration over {self.size:,} paths; lossless is up to {self.tolerance:g}.",
                f"Run again {self.repetitions:,} times with the same results; no randomness "
                "beside the generator was seen.",
            ]
        return [
            f"Sampled {self.size:,} rounds, because {self.why_sampled}.",
            f"Total variation from the target between {low:.3g} and {high:.3g} "
            f"({self.confidence:.0%} confidence).",
            f"{describe_test(self.test)}; false-alarm rate {self.false_alarm_rate:.0e} over all "
            "tests.",
            describe_power(self.test),
        ]
