"""Exact audit: enumeration of a rule's draws, or of a plan's conditional distributions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from otlp.auditing.audited_rule import AuditedRule, Failure, Step
from otlp.auditing.audited_token_rule import AuditedTokenRule
from otlp.auditing.enumeration import NotEnumerableError, enumerate_distribution
from otlp.auditing.real_calls import check_real_calls
from otlp.auditing.report import AuditReport, report_on
from otlp.auditing.settings import AuditRun
from otlp.distribution import FloatArray, total_variation
from otlp.errors import InvalidInputError


def audit_exactly(audited: AuditedRule, settings: AuditRun) -> AuditReport:
    """Enumerate the random draws of the drafts and the rule, then test real rounds.

    Raises
    ------
    NotEnumerableError
        If the draws cannot be enumerated, the unexplored paths could change the verdict, or real
        rounds do not follow the enumerated distribution.
    """
    law = enumerate_distribution(
        one_round(audited),
        settings.max_paths,
        settings.rng,
        lambda paths: settings.progress("following paths", paths / settings.max_paths),
    )
    outputs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    failures: defaultdict[str, float] = defaultdict(float)
    drafted: defaultdict[tuple[int, ...], float] = defaultdict(float)
    acceptance = tokens_per_round = 0.0
    for (tokens, output), weight in law.weights.items():
        drafted[tokens] += weight
        if isinstance(output, Failure):
            failures[output.what] += weight
        else:
            outputs[output] += weight
            acceptance += weight * audited.accepted(tokens, output)
            tokens_per_round += weight * audited.token_count(output)
    texts = audited.completed(outputs)
    return _report(
        audited,
        settings,
        texts,
        failures,
        slack=law.unexplored,
        method=getattr(audited.rule, "method", "enumeration"),
        acceptance=acceptance,
        tokens=tokens_per_round,
        drafts=audited.compare_drafts(drafted, settings.tolerance) if audited.checked else None,
        size=law.paths,
        repetitions=law.repetitions,
        real_tests=check_real_calls(audited, settings, law, texts),
        sample_error=_sample_error(audited, law.weights, drafted),
    )


def one_round(audited: AuditedRule) -> Callable[[Any], Step]:
    """Return the program that drafts and verifies one round from a source of random numbers."""

    # `HiddenInput` inspects the closure of this function, so it must not hold a generator.
    def program(source: Any) -> Step:
        try:
            tokens = audited.draft(1, source)
        except InvalidInputError as error:  # Possibly because a draw cannot be followed.
            raise NotEnumerableError(str(error)) from error
        return Step(tuple(tokens[0].tolist()), audited.play(tokens, source)[0])

    return program


def audit_conditionals(audited: AuditedTokenRule, settings: AuditRun) -> AuditReport:
    """Audit the conditional distributions of a plan, without sampling."""
    listed = audited.listed
    output, acceptance = np.zeros(audited.vocab_size), 0.0
    failures: defaultdict[str, float] = defaultdict(float)
    for tokens, weight in zip(listed.tokens.tolist(), listed.mass.tolist(), strict=True):
        law = audited.conditional(tuple(tokens))
        if isinstance(law, Failure):
            failures[law.what] += weight
        else:
            output += weight * law
            acceptance += weight * float(law[list(set(tokens))].sum())
    return _report(
        audited,
        settings,
        output,
        failures,
        method="conditional",
        acceptance=acceptance,
        tokens=float(output.sum()),
        drafts=audited.compare_drafts({}, settings.tolerance) if audited.checked else None,
        size=listed.mass.size,
    )


def _sample_error(
    audited: AuditedRule, weights: Mapping[Step, float], drafted: Mapping[tuple[int, ...], float]
) -> float:
    """Return the total variation between `Plan.sample` and the conditionals; 0 without a plan."""
    if audited.plan is None:
        return 0.0
    sampled = {tokens: np.zeros(audited.vocab_size) for tokens in drafted}
    for (tokens, output), weight in weights.items():
        if not isinstance(output, Failure):
            sampled[tokens][output[0]] += weight
    apart = 0.0
    for tokens, weight in drafted.items():
        law = audited.conditional(tokens)
        whole = np.zeros(audited.vocab_size) if isinstance(law, Failure) else weight * law
        apart += total_variation(sampled[tokens], whole)
    return apart


def _report(
    audited: AuditedRule,
    settings: AuditRun,
    output: FloatArray,
    failures: Mapping[str, float],
    slack: float = 0.0,
    **found: Any,
) -> AuditReport:
    """Return a report of a law that is known up to a total variation of `slack`."""
    target = audited.texts()
    apart = total_variation(np.append(output, sum(failures.values())), np.append(target, 0.0))
    if apart - slack <= settings.tolerance < apart + slack:
        raise NotEnumerableError(f"its exact law is only known up to {slack:.2g}")
    return report_on(
        audited,
        settings,
        target,
        output,
        failures,
        total_variation=apart,
        interval=(max(0.0, apart - slack), min(1.0, apart + slack)),
        **found,
    )
