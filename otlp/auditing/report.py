"""What an audit found: a verdict, the numbers behind it, both in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from enum import Enum
from typing import Any

import numpy as np
from scipy.special import ndtri

from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.gtest import GTest
from otlp.auditing.settings import AuditRun
from otlp.auditing.subject import Subject
from otlp.distribution import FloatArray
from otlp.showing.html import html_bar, html_table

UPWARDS = Context(prec=2, rounding=ROUND_CEILING)
"""Rounds what a test promises to find, so that the promise stays true."""


class Verdict(Enum):
    """What an audit concludes; the value says it in plain words.

    Examples
    --------
    >>> import otlp
    >>> otlp.auditing.Verdict.LOSSLESS.passed, otlp.auditing.Verdict.NOT_LOSSLESS.passed
    (True, False)
    """

    LOSSLESS = "The rule is lossless: its exact output law is the target; real calls follow it."
    NOT_REJECTED = "No deviation was found: the sample agrees with the target. That is no proof."
    NOT_LOSSLESS = "The rule is not lossless: its output does not follow the target."
    RULE_FAILED = "The rule raises an error, or gives what is no token or no distribution."
    DRAFTS_DIFFER = "The drafts do not follow the scheme that they are said to follow."
    SAMPLE_DIFFERS = "The plan's sample does not follow its conditional."
    ROUNDS_DEPEND = "Successive rounds are not independent: random numbers are used again."
    ANTICIPATION = "How much is verified depends on what was drawn: texts are not the target's."
    DRAWS_SHARED = "Text is not the target's, as drafts and verification share random numbers."
    SLOWER_THAN_STATED = "Nothing is wrong with the text; less is accepted than is stated."
    TEXTS_DIFFER = "The server's texts do not follow those of the baseline."

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return self in (Verdict.LOSSLESS, Verdict.NOT_REJECTED)


@dataclass(frozen=True, eq=False)
class AuditReport:
    """What `otlp.audit` and `otlp.audit_rounds` found.

    One token is a round of length one: a text is what the rule gave, completed by the target to
    L + 1 tokens, and L = 0 for a rule over one token.

    Attributes
    ----------
    rule, drafted : str
        What was tested: the rule, and how its drafts are said to be drawn.
    method : str
        "enumeration" (exact), "conditional" (exact: a plan's conditionals), "search" (exact if a
        program's answers are constant between points of equal answers) or "sampling".
    target, output : ndarray, shape (V,) or (V, ..., V)
        Distribution of a text: the target's, and that of the rule's output, exact or as sampled.
        Failures are missing from it.
    acceptance, acceptance_error : float
        Probability that the output is one of the drafted tokens, exact or as sampled, and then
        half of its interval at `confidence`; NaN for a rule over several tokens.
    tokens, tokens_error : float
        Mean number of tokens that a round gives, likewise.
    total_variation : float
        Between target and output (a failure counts as another text); of the sample, if sampled,
        and then too large by the sampling noise: see `interval`.
    interval : tuple of float
        Bounds on the total variation, at `confidence` if sampled.
    tolerance : float
        Largest exact total variation that is called lossless.
    failures : mapping of str to float
        What went wrong, and its probability or share of the samples.
    drafts : DraftCheck or None
        Whether the drafts follow the declared ones; None if there was nothing to compare.
    reported_draft_error : float
        Total variation of the q that is reported to the rule from the declared scheme's own, the
        largest over the drafts; NaN where they cannot be compared (a list of tuples has no q).
    size : int
        Paths followed, tuples listed ("conditional"), or samples drawn.
    why_sampled : str
        Why the exact law was not computed, or why a plan's samples were not followed; empty if
        all is exact.
    confidence : float
        1 if the law is exact.
    false_alarm_rate : float
        Probability that a correct rule with the declared drafts is rejected by this audit; 0 if
        all is exact.
    test : GTest or None
        The G-test of the sampled output; None if the law is exact.
    repetitions : int
        How often a path was run again, always with the same result; 0 if sampled.
    sample_error : float
        Total variation of what a plan samples from its conditionals, over all drafts; 0 if there
        is no plan, NaN if sampled.
    sample_test : GTest or None
        The G-test of what a plan samples against its conditionals, where it was sampled.
    real_tests : mapping of str to GTest
        The G-tests of real calls against the law that was enumerated, by what was counted, the
        outputs first; empty if there is none.
    reading : str
        How the rule's arguments were read, where their names do not say all; see `otlp.audit`.
    lossless_swapped : bool
        Whether nothing is wrong with the rule once it is handed q for p and p for q; looked for
        where something is wrong with a rule over one token.
    successive : mapping of str to GTest
        The G-tests of independence of successive rounds that were drafted by an engine's own
        random state, by what was paired; empty elsewhere.
    anticipation : str
        Where texts are off under a schedule, and are right at each fixed length: an example of what
        it looks at; else empty.
    stated : float
        What `acceptance`, or for a rule over several tokens `tokens`, is said to be; NaN if
        nothing is.
    apart : GTest or None
        Where text of such rounds is not the target's, and is with drafts drawn apart: its test.

    Examples
    --------
    >>> import otlp
    >>> def first_always(draft_tokens, p, q, rng):
    ...     return int(draft_tokens[0])
    >>> report = otlp.audit(first_always, [0.5, 0.5], otlp.IID([0.9, 0.1], n=2))
    >>> report.verdict.name, round(report.total_variation, 6), report.worst_texts(1)
    ('NOT_LOSSLESS', 0.4, [((0,), 0.5, 0.9)])
    """

    rule: str
    drafted: str
    method: str
    target: FloatArray
    output: FloatArray
    acceptance: float
    tokens: float
    total_variation: float
    interval: tuple[float, float]
    tolerance: float
    failures: Mapping[str, float]
    drafts: DraftCheck | None
    reported_draft_error: float
    size: int
    acceptance_error: float = 0.0
    tokens_error: float = 0.0
    why_sampled: str = ""
    confidence: float = 1.0
    false_alarm_rate: float = 0.0
    test: GTest | None = None
    repetitions: int = 0
    sample_error: float = 0.0
    sample_test: GTest | None = None
    real_tests: Mapping[str, GTest] = field(default_factory=dict)
    reading: str = ""
    lossless_swapped: bool = False
    successive: Mapping[str, GTest] = field(default_factory=dict)
    apart: GTest | None = None
    anticipation: str = ""
    stated: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """The first thing that is wrong, in the order in which one mends them."""
        exact = self.test is None
        if sum(self.failures.values()) > (self.tolerance if exact else 0.0):
            return Verdict.RULE_FAILED
        if any(test.rejected for test in self.successive.values()):
            return Verdict.ROUNDS_DEPEND
        if self.drafts is not None and not self.drafts.agrees:
            return Verdict.DRAFTS_DIFFER
        if self.interval[1] > self.tolerance if self.test is None else self.test.rejected:
            if self.anticipation:
                return Verdict.ANTICIPATION
            return Verdict.DRAWS_SHARED if self.apart else Verdict.NOT_LOSSLESS
        if self.sample_error > self.tolerance or (self.sample_test and self.sample_test.rejected):
            return Verdict.SAMPLE_DIFFERS
        if self.slower:
            return Verdict.SLOWER_THAN_STATED
        return Verdict.LOSSLESS if exact and self.method != "search" else Verdict.NOT_REJECTED

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return self.verdict.passed

    @property
    def slower(self) -> bool:
        """Whether less is accepted than is stated, by more than chance has at 1e-6."""
        if math.isnan(self.stated):
            return False
        found, error = self.acceptance, self.acceptance_error
        if math.isnan(found):
            found, error = self.tokens, self.tokens_error
        if self.test is not None:
            error *= float(ndtri(1.0 - 1e-6) / max(ndtri(0.5 + 0.5 * self.confidence), 1e-16))
        return found + max(error, self.tolerance) < self.stated

    def worst_texts(self, count: int = 5) -> list[tuple[tuple[int, ...], float, float]]:
        """The texts that are furthest off: (tokens, target, output), the worst first.

        In a sample they are measured in standard deviations, else a frequent text would lead by
        noise.
        """
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

    def __repr__(self) -> str:
        """Say the verdict on the rule, and how it was found."""
        low, high = self.interval
        return (
            f"<AuditReport {self.verdict.name}: {self.rule}, by {self.method}, "
            f"total variation {low:.3g} to {high:.3g}>"
        )

    def _repr_html_(self) -> str:
        first, *rest = str(self).splitlines()
        table = html_table(f"Audit of {self.rule}", {first.partition(":")[0]: " ".join(rest)})
        return table if math.isnan(self.acceptance) else table + html_bar(self.acceptance, math.nan)

    def __str__(self) -> str:
        """Say what was tested and what was found, in plain words."""
        completed = f"; outputs are completed by the target to {self.target.ndim} tokens"
        lines = [
            f"{self.verdict.name}: {self.verdict.value}",
            f"Tested: {self.rule}, on {self.drafted}, over {self.target.shape[0]} tokens"
            f"{completed if self.target.ndim > 1 else ''}.",
        ]
        lines += [self.reading] if self.reading else []
        if self.lossless_swapped:
            lines.append(
                "With p and q swapped nothing is wrong with it: it takes the draft's law where it "
                "is handed the target's. Name its parameters target_probs and draft_probs."
            )
        kind = "probability" if self.test is None else "share of samples"
        lines += [f"  {what} ({kind} {chance:.3g})" for what, chance in self.failures.items()]
        lines += self._exact() if self.test is None else self._sampled(self.test)
        if self.sample_test is not None:
            lines.append(
                f"Samples against conditionals, {self.sample_test.samples:,} of them: "
                f"G-test: {self.sample_test}."
            )
        if math.isnan(self.acceptance):
            lines.append(f"Mean tokens a round {self._mean(self.tokens, self.tokens_error)}.")
        else:
            share = self._mean(self.acceptance, self.acceptance_error)
            lines.append(f"Acceptance {share} (output among the drafted tokens).")
        if not math.isnan(self.stated):
            lines.append(f"Stated: {self.stated:.6g}.")
        if not self.passed and not self.slower:
            lines.append("Furthest off: " + "; ".join(map(_text, self.worst_texts())) + ".")
        if self.anticipation:
            lines.append(f"At each fixed length the rule is right; {self.anticipation}.")
        if self.reported_draft_error > self.tolerance:
            lines.append(
                "The rule was told another q than its drafts are said to follow: total variation "
                f"{self.reported_draft_error:.3g}."
            )
        if self.drafts is not None:
            lines.append(str(self.drafts))
        return "\n".join(lines)

    def _mean(self, mean: float, error: float) -> str:
        if self.test is None:
            return f"{mean:.6g}"
        return f"{mean:.4g} ± {error:.2g} ({self.confidence:.0%} confidence)"

    def _exact(self) -> list[str]:
        low, high = self.interval
        text = f"Total variation from the target {self.total_variation:.3g}"
        if high - low > 1e-9:
            text += f" (between {low:.3g} and {high:.3g})"
        counted = "tuples" if self.method == "conditional" else "paths"
        tried = " between tried points" if self.method == "search" else ""
        lines = [
            f"{text}, exact by {self.method}{tried} over {self.size:,} {counted}; "
            f"lossless is up to {self.tolerance:g}."
        ]
        if self.repetitions:
            lines.append(
                f"Run again {self.repetitions:,} times with the same results; no randomness "
                "beside the generator was seen."
            )
        if self.real_tests:
            lines += _describe_real(self.real_tests)
        if self.sample_error > self.tolerance:
            lines.append(f"Its samples are {self.sample_error:.3g} off its conditionals.")
        if self.why_sampled:
            lines.append(f"Its sampler was sampled, because {self.why_sampled}.")
        return lines

    def _sampled(self, test: GTest) -> list[str]:
        low, high = self.interval
        return [
            f"Sampled {self.size:,} times, because {self.why_sampled}.",
            f"Total variation from the target between {low:.3g} and {high:.3g} "
            f"({self.confidence:.0%} confidence).",
            f"G-test: {test}; false-alarm rate {self.false_alarm_rate:.0e} over all tests.",
            describe_power(test),
            *self._in_sequence(),
        ]

    def _in_sequence(self) -> list[str]:
        lines = []
        if self.successive:
            what, least = min(self.successive.items(), key=lambda entry: entry[1].p_value)
            lines.append(f"Successive rounds, {len(self.successive)} tests; {what}: {least}.")
            varying = [test for test in self.successive.values() if test.degrees] or [least]
            weakest = max(varying, key=lambda test: test.detectable)
            lines.append(describe_power(weakest, "A dependence of total variation"))
        if self.apart is not None:
            lines.append(
                f"With drafts that are drawn apart no deviation is found (G-test: {self.apart})."
            )
        return lines


def report_on(
    subject: Subject,
    settings: AuditRun,
    target: FloatArray,
    output: FloatArray,
    failures: Mapping[str, float],
    **found: Any,
) -> AuditReport:
    """A report of laws of texts, as vectors; of failures the five commonest are kept."""
    shape = (subject.vocab_size,) * len(subject.target)
    return AuditReport(
        rule=subject.name,
        drafted=subject.drafted,
        target=target.reshape(shape),
        output=output.reshape(shape),
        tolerance=settings.tolerance,
        failures=dict(sorted(failures.items(), key=lambda entry: -entry[1])[:5]),
        reported_draft_error=subject.reported_draft_error,
        reading=subject.reading,
        **found,
    )


def _text(entry: tuple[tuple[int, ...], float, float]) -> str:
    tokens, target, output = entry
    named = f"token {tokens[0]}" if len(tokens) == 1 else f"text {list(tokens)}"
    return f"{named} has {output:.4g} instead of {target:.4g}"


def _describe_real(tests: Mapping[str, GTest]) -> list[str]:
    """Say how often a rule was played for real, and what that would have found."""
    outputs, _, *renamed = tests.values()
    played = sum(test.samples for test in (outputs, *renamed))
    said = (
        f"Played {played:,} times with real generators, as that law says (least p-value of "
        f"{len(tests)} G-tests {min(test.p_value for test in tests.values()):.2g})."
    )
    if outputs.degrees == 0:
        return [said, "There is one likely output; a few others would have been an alarm."]
    if outputs.detectable >= 1.0:
        return [said, "Its outputs are too many for a deviation of a stated size."]
    return [said, describe_power(outputs)]


def describe_power(test: GTest, what: str = "A total variation of") -> str:
    """Say what a test would have found."""
    if test.detectable >= 1.0:
        return "No deviation is sure to be found: raise samples, or take p and q over fewer tokens."
    least = float(UPWARDS.create_decimal(test.detectable))
    return f"{what} {least:.2g} or more would have been found with probability {test.power:.0%}."
