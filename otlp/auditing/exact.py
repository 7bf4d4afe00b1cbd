"""The exact audit: every drafted tuple, every draw of the rule, every conditional of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from otlp.auditing.enumeration import NotEnumerableError, enumerate_distribution
from otlp.auditing.real_calls import hold_real_calls
from otlp.auditing.report import AuditReport, report_on
from otlp.auditing.settings import AuditRun
from otlp.auditing.subject import Failure, Step, Subject
from otlp.auditing.token_subject import TokenSubject
from otlp.distribution import FloatArray, total_variation
from otlp.errors import InvalidInputError


def audit_exactly(subject: Subject, settings: AuditRun) -> AuditReport:
    """Follow the drafts and the rule over all random draws; then play real rounds.

    Raises
    ------
    NotEnumerableError
        If that cannot be done, the paths that are too unlikely to follow could change the
        verdict, or real rounds do not follow the law that is found.
    """

    # it is watched: it must not hold a generator, as the settings do
    def program(source: Any) -> Step:
        try:
            tokens = subject.draft(1, source)
        except InvalidInputError as error:  # perhaps since it cannot be followed: see there
            raise NotEnumerableError(str(error)) from error
        return Step(tuple(tokens[0].tolist()), subject.play(tokens, source)[0])

    law = enumerate_distribution(
        program,
        settings.max_paths,
        settings.rng,
        lambda paths: settings.progress("following paths", paths / settings.max_paths),
    )
    outputs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    failures: defaultdict[str, float] = defaultdict(float)
    drafted: defaultdict[tuple[int, ...], float] = defaultdict(float)
    acceptance = tokens_a_round = 0.0
    for (tokens, output), weight in law.weights.items():
        drafted[tokens] += weight
        if isinstance(output, Failure):
            failures[output.what] += weight
        else:
            outputs[output] += weight
            acceptance += weight * subject.accepted(tokens, output)
            tokens_a_round += weight * subject.given(output)
    texts = subject.completed(outputs)
    return _report(
        subject,
        settings,
        texts,
        failures,
        slack=law.unexplored,
        method=getattr(subject.rule, "method", "enumeration"),
        acceptance=acceptance,
        tokens=tokens_a_round,
        drafts=subject.compare_drafts(drafted, settings.tolerance) if subject.checked else None,
        size=law.paths,
        repetitions=law.repetitions,
        real_tests=hold_real_calls(subject, settings, law, texts),
        sample_error=_sample_error(subject, law.weights, drafted),
    )


def audit_conditionals(subject: TokenSubject, settings: AuditRun) -> AuditReport:
    """Read a plan's conditional distributions, without drawing from it."""
    listed = subject.listed
    output, acceptance = np.zeros(subject.vocab_size), 0.0
    failures: defaultdict[str, float] = defaultdict(float)
    for tokens, weight in zip(listed.tokens.tolist(), listed.mass.tolist(), strict=True):
        law = subject.conditional(tuple(tokens))
        if isinstance(law, Failure):
            failures[law.what] += weight
        else:
            output += weight * law
            acceptance += weight * float(law[list(set(tokens))].sum())
    return _report(
        subject,
        settings,
        output,
        failures,
        method="conditional",
        acceptance=acceptance,
        tokens=float(output.sum()),
        drafts=subject.compare_drafts({}, settings.tolerance) if subject.checked else None,
        size=listed.mass.size,
    )


def _sample_error(
    subject: Subject, weights: Mapping[Step, float], drafted: Mapping[tuple[int, ...], float]
) -> float:
    """Total variation of what a plan samples from its conditionals, over all tuples; 0 else."""
    if subject.plan is None:
        return 0.0
    sampled = {tokens: np.zeros(subject.vocab_size) for tokens in drafted}
    for (tokens, output), weight in weights.items():
        if not isinstance(output, Failure):
            sampled[tokens][output[0]] += weight
    apart = 0.0
    for tokens, weight in drafted.items():
        law = subject.conditional(tokens)
        whole = np.zeros(subject.vocab_size) if isinstance(law, Failure) else weight * law
        apart += total_variation(sampled[tokens], whole)
    return apart


def _report(
    subject: Subject,
    settings: AuditRun,
    output: FloatArray,
    failures: Mapping[str, float],
    slack: float = 0.0,
    **found: Any,
) -> AuditReport:
    """A report of a law that is known up to `slack`."""
    target = subject.texts()
    apart = total_variation(np.append(output, sum(failures.values())), np.append(target, 0.0))
    if apart - slack <= settings.tolerance < apart + slack:
        raise NotEnumerableError(f"its exact law is known up to {slack:.2g} only")
    return report_on(
        subject,
        settings,
        target,
        output,
        failures,
        total_variation=apart,
        interval=(max(0.0, apart - slack), min(1.0, apart + slack)),
        **found,
    )
