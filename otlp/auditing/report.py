"""Report of an audit: the verdict, its numbers, and their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from enum import Enum
from typing import Any

import numpy as np
from scipy.special import ndtri

from otlp.auditing.audited_rule import AuditedRule
from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.gtest import GTest
from otlp.auditing.settings import AuditRun
from otlp.distribution import FloatArray
from otlp.showing.html import html_bar, html_table

UPWARDS = Context(prec=2, rounding=ROUND_CEILING)
"""Rounds up, so that a printed detectable total variation is not too small."""


class Verdict(Enum):
    """Verdict of an audit; the value is its description.

    Examples
    --------
    >>> import otlp
    >>> otlp.auditing.Verdict.LOSSLESS.passed, otlp.auditing.Verdict.NOT_LOSSLESS.passed
    (True, False)
    """

    LOSSLESS = "The rule is lossless: its exact output law is the target; real calls follow it."
    NOT_REJECTED = "No deviation was found: the sample agrees with the target. This is not a proof."
    NOT_LOSSLESS = "The rule is not lossless: its output does not follow the target."
    RULE_FAILED = "The rule raises an error, or does not return a token or a distribution."
    DRAFTS_DIFFER = "The drafts do not follow the declared draft scheme."
    SAMPLE_DIFFERS = "The plan's sample does not follow its conditional."
    ROUNDS_DEPEND = "Successive rounds are not independent: random numbers are used again."
    ANTICIPATION = "The schedule depends on drawn tokens: the text does not follow the target."
    DRAWS_SHARED = "Drafts and verification share random numbers: the text is not the target's."
    SLOWER_THAN_STATED = "No deviation was found, but the acceptance is lower than stated."
    TEXTS_DIFFER = "The server's texts do not follow the baseline's texts."

    @property
    def passed(self) -> bool:
        """Whether the verdict is LOSSLESS or NOT_REJECTED."""
        return self in (Verdict.LOSSLESS, Verdict.NOT_REJECTED)


@dataclass(frozen=True, eq=False)
class AuditReport:
    """Report of `otlp.audit` or `otlp.audit_rounds`.

    A text is an output completed by the target to L + 1 tokens; L = 0 for a rule over one token.

    Attributes
    ----------
    rule, drafted : str
        Name of the rule, and description of the declared drafts.
    method : str
        "enumeration" (exact), "conditional" (exact, from a plan's conditionals), "search" (exact if
        a program's answers are constant between probes with equal answers) or "sampling".
    target, output : ndarray, shape (V,) or (V, ..., V)
        Distribution of a text under the target and under the rule, exact or sampled, without
        failures.
    acceptance, acceptance_error : float
        Probability that the output is a drafted token, and half the width of its interval at
        `confidence` (0 if exact); `acceptance` is NaN for a rule over several tokens.
    tokens, tokens_error : float
        Mean number of tokens per round, and half the width of its interval.
    total_variation : float
        Total variation between target and output (a failure counts as another text).  If sampled,
        the value of the sample, which sampling noise increases; see `interval`.
    interval : tuple of float
        Bounds on the total variation, at `confidence` if sampled.
    tolerance : float
        Maximum exact total variation of a lossless rule.
    failures : mapping of str to float
        Descriptions of failures with their probability or fraction of the samples.
    drafts : DraftCheck or None
        Comparison of the drafts with the declared scheme; None if the declared scheme is drawn.
    reported_draft_error : float
        Total variation between the q that is passed to the rule and the q of the declared scheme,
        the maximum over the drafts; NaN if not comparable (a list of tuples has no q).
    size : int
        Number of paths ("enumeration", "search"), tuples ("conditional") or samples.
    why_sampled : str
        Reason why the rule, or the `sample` of a plan, was sampled; empty if the audit is exact.
    confidence : float
        Confidence of the intervals; 1 if the law is exact.
    false_alarm_rate : float
        Probability that the audit rejects a correct rule with the declared drafts; 0 if the audit
        is exact.
    test : GTest or None
        G-test of the sampled output; None if the law is exact.
    repetitions : int
        Number of repetitions of paths, all with the same result; 0 if sampled.
    sample_error : float
        Total variation between the samples and the conditionals of a plan, over all drafts; 0
        without a plan, NaN if sampled.
    sample_test : GTest or None
        G-test of the samples of a plan against its conditionals, if sampled.
    real_tests : mapping of str to GTest
        G-tests of real calls against the enumerated law, by the quantity counted, the outputs
        first; empty without enumeration.
    reading : str
        How the rule's parameters were mapped, if not by recognized names in the usual order; see
        `otlp.audit`.
    lossless_swapped : bool
        Whether the rule passes with p and q swapped; tested only if a rule over one token fails.
    successive : mapping of str to GTest
        G-tests of independence of successive rounds, by the quantities paired; empty without a
        drafter.
    anticipation : str
        An example of how the schedule depends on drawn tokens, if the texts deviate under the
        schedule but not at each fixed length; else empty.
    stated : float
        Stated `acceptance` (for a rule over several tokens: `tokens`); NaN if not stated.
    apart : GTest or None
        G-test of the texts with redrawn drafts, if the texts deviate with the drafter's tokens but
        not with redrawn drafts.

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
        """The first finding, in the order in which the findings should be fixed."""
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
        """Whether the verdict is LOSSLESS or NOT_REJECTED."""
        return self.verdict.passed

    @property
    def slower(self) -> bool:
        """Whether the acceptance (or mean tokens) is below `stated`, significant at 1e-6."""
        if math.isnan(self.stated):
            return False
        found, error = self.acceptance, self.acceptance_error
        if math.isnan(found):
            found, error = self.tokens, self.tokens_error
        if self.test is not None:
            error *= float(ndtri(1.0 - 1e-6) / max(ndtri(0.5 + 0.5 * self.confidence), 1e-16))
        return found + max(error, self.tolerance) < self.stated

    def worst_texts(self, count: int = 5) -> list[tuple[tuple[int, ...], float, float]]:
        """Return (tokens, target, output) of the texts with the largest deviations, in order.

        Deviations of a sample are in standard deviations, because the noise of frequent texts is
        larger.
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
        """Return the verdict, the rule, the method and the interval."""
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
        """Return a summary of the audit."""
        completed = f"; outputs are completed by the target to {self.target.ndim} tokens"
        lines = [
            f"{self.verdict.name}: {self.verdict.value}",
            f"Tested: {self.rule}, on {self.drafted}, with {self.target.shape[0]} entries in p"
            f"{completed if self.target.ndim > 1 else ''}.",
        ]
        lines += [self.reading] if self.reading else []
        if self.lossless_swapped:
            lines.append(
                "With p and q swapped the rule passes: its parameters for p and q are in the "
                "opposite order. Name the parameters target_probs and draft_probs."
            )
        kind = "probability" if self.test is None else "fraction of samples"
        lines += [f"  {what} ({kind} {chance:.3g})" for what, chance in self.failures.items()]
        lines += self._exact() if self.test is None else self._sampled(self.test)
        if self.sample_test is not None:
            lines.append(
                f"Test of {self.sample_test.samples:,} samples against the conditionals: "
                f"G-test: {self.sample_test}."
            )
        if math.isnan(self.acceptance):
            lines.append(f"Mean tokens per round {self._mean(self.tokens, self.tokens_error)}.")
        else:
            share = self._mean(self.acceptance, self.acceptance_error)
            lines.append(f"Acceptance {share} (output among the drafted tokens).")
        if not math.isnan(self.stated):
            lines.append(f"Stated: {self.stated:.6g}.")
        if not self.passed and not self.slower:
            lines.append("Largest deviations: " + "; ".join(map(_text, self.worst_texts())) + ".")
        if self.anticipation:
            lines.append(f"The rule passes at each fixed length; {self.anticipation}.")
        if self.reported_draft_error > self.tolerance:
            lines.append(
                "The q passed to the rule differs from the q of the declared drafts: total "
                f"variation {self.reported_draft_error:.3g}."
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
        between = " between probes" if self.method == "search" else ""
        lines = [
            f"{text}, exact by {self.method}{between} over {self.size:,} {counted}; "
            f"tolerance {self.tolerance:g}."
        ]
        if self.repetitions:
            lines.append(
                f"Repeated {self.repetitions:,} times with the same results; no randomness "
                "other than the generator was detected."
            )
        if self.real_tests:
            lines += _describe_real(self.real_tests)
        if self.sample_error > self.tolerance:
            lines.append(f"Total variation of samples from conditionals {self.sample_error:.3g}.")
        if self.why_sampled:
            lines.append(f"The plan's sample was tested by sampling, because {self.why_sampled}.")
        return lines

    def _sampled(self, test: GTest) -> list[str]:
        low, high = self.interval
        return [
            f"Sampled {self.size:,} times, because {self.why_sampled}.",
            f"Total variation from the target between {low:.3g} and {high:.3g} "
            f"({self.confidence:.0%} confidence).",
            f"G-test: {test}; false-alarm rate {self.false_alarm_rate:.0e} over all tests.",
            describe_power(test),
            *self._independence(),
        ]

    def _independence(self) -> list[str]:
        lines = []
        if tests := self.successive:
            what, least = min(tests.items(), key=lambda entry: entry[1].p_value)
            lines.append(f"Independence, least p-value of {len(tests)} tests, {what}: {least}.")
            varying = [test for test in tests.values() if test.degrees] or [least]
            weakest = max(varying, key=lambda test: test.detectable)
            lines.append(describe_power(weakest, "A dependence of total variation"))
        if self.apart is not None:
            lines.append(
                f"With drafts of another generator, no deviation was found (G-test: {self.apart})."
            )
        return lines


def report_on(
    audited: AuditedRule,
    settings: AuditRun,
    target: FloatArray,
    output: FloatArray,
    failures: Mapping[str, float],
    **found: Any,
) -> AuditReport:
    """Return a report from laws of texts given as vectors; keep the five most common failures."""
    shape = (audited.vocab_size,) * len(audited.target)
    return AuditReport(
        rule=audited.name,
        drafted=audited.drafted,
        target=target.reshape(shape),
        output=output.reshape(shape),
        tolerance=settings.tolerance,
        failures=dict(sorted(failures.items(), key=lambda entry: -entry[1])[:5]),
        reported_draft_error=audited.reported_draft_error,
        reading=audited.reading,
        **found,
    )


def _text(entry: tuple[tuple[int, ...], float, float]) -> str:
    tokens, target, output = entry
    label = f"token {tokens[0]}" if len(tokens) == 1 else f"text {list(tokens)}"
    return f"{label} has {output:.4g} instead of {target:.4g}"


def _describe_real(tests: Mapping[str, GTest]) -> list[str]:
    """Return lines on the number of real calls and the power of their test."""
    outputs, _, *renamed = tests.values()
    calls = sum(test.samples for test in (outputs, *renamed))
    line = (
        f"{calls:,} calls with real generators follow this law (least p-value of "
        f"{len(tests)} G-tests {min(test.p_value for test in tests.values()):.2g})."
    )
    if outputs.degrees == 0:
        return [line, "Only one output is likely; a few other outputs would have been rejected."]
    if outputs.detectable >= 1.0:
        return [line, "There are too many outputs to state a detectable total variation."]
    return [line, describe_power(outputs)]


def describe_power(test: GTest, what: str = "A total variation of") -> str:
    """Return a sentence on the total variation that the test detects."""
    if test.detectable >= 1.0:
        return "No deviation is sure to be found: raise samples, or use p and q over fewer tokens."
    least = float(UPWARDS.create_decimal(test.detectable))
    return f"{what} {least:.2g} or more would be detected with probability {test.power:.0%}."
