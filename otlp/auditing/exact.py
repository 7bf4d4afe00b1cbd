"""The exact audit: every tuple, every random draw of the rule, every conditional of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from otlp.auditing.draft_check import DraftCheck, exact_draft_check
from otlp.auditing.enumeration import NotEnumerableError, enumerate_law
from otlp.auditing.report import AuditReport, commonest
from otlp.auditing.subject import Failure, Progress, Step, Subject
from otlp.distribution import FloatArray, total_variation
from otlp.drafts import DraftScheme, DraftTuples
from otlp.errors import InvalidInputError


class _Tally:
    """Sums the distribution of the output over drafted tuples."""

    def __init__(self, size: int) -> None:
        self.output = np.zeros(size)
        self.acceptance = 0.0
        self.failures: defaultdict[str, float] = defaultdict(float)

    def add(self, tokens: tuple[int, ...], law: FloatArray | Failure, weight: float) -> None:
        if isinstance(law, Failure):
            self.failures[law.what] += weight
            return
        self.output += weight * law
        self.acceptance += weight * float(law[list(set(tokens))].sum())


def audit_conditionals(subject: Subject, drafts: DraftScheme, max_paths: int) -> AuditReport:
    """Read a plan's conditional distributions, without drawing from it.

    Raises
    ------
    NotEnumerableError
        If there are more tuples than `max_paths`.
    """
    listed = _listed(drafts, max_paths)
    tally = _Tally(subject.target.size)
    for tokens, weight in zip(listed.tokens.tolist(), listed.mass.tolist(), strict=True):
        tally.add(tuple(tokens), subject.conditional(tuple(tokens)), weight)
    check = None if drafts is subject.declared else _compare(subject, _law(listed))
    return _report(subject, tally, check, method="conditional", size=listed.mass.size)


def audit_exactly(
    subject: Subject, max_paths: int, rng: np.random.Generator, progress: Progress
) -> AuditReport:
    """Follow the rule, and the sampler of drafts if there is one, over all random draws.

    Raises
    ------
    NotEnumerableError
        If that cannot be done, or the paths that are too unlikely to follow could change the
        verdict.
    """
    drafts = subject.drafts
    listed = _listed(drafts, max_paths) if isinstance(drafts, DraftScheme) else None
    mass = None if listed is None else listed.mass / listed.mass.sum()

    def program(source: Any) -> Step:
        if listed is None:
            try:
                tokens = subject.draw(source)
            except InvalidInputError as error:  # perhaps since it cannot be followed: see there
                raise NotEnumerableError(str(error)) from error
        else:
            tokens = listed.tokens[source.category(mass)]
        return Step(tuple(tokens.tolist()), subject.verify(tokens, source))

    law = enumerate_law(
        program, max_paths, rng, lambda paths: progress("following paths", paths / max_paths)
    )
    size = subject.target.size
    joint: defaultdict[tuple[int, ...], FloatArray] = defaultdict(lambda: np.zeros(size))
    drafted: defaultdict[tuple[int, ...], float] = defaultdict(float)
    tally = _Tally(size)
    for (tokens, outcome), weight in law.weights.items():
        drafted[tokens] += weight
        if isinstance(outcome, Failure):
            tally.add(tokens, outcome, weight)
        else:
            joint[tokens][outcome] += weight
    for tokens, part in joint.items():
        tally.add(tokens, part, 1.0)
    check = None
    if drafts is not subject.declared:
        check = _compare(subject, drafted if listed is None else _law(listed))
    return _report(
        subject,
        tally,
        check,
        slack=law.unexplored,
        size=law.paths,
        repetitions=law.repetitions,
        sample_apart=_sample_apart(subject, joint, drafted),
    )


def _listed(drafts: DraftScheme, max_paths: int) -> DraftTuples:
    if drafts.tuple_count() > max_paths:
        raise NotEnumerableError(
            f"there are {drafts.tuple_count():,.0f} tuples, more than max_paths = {max_paths:,}"
        )
    return drafts.enumerate_tuples()


def _law(listed: DraftTuples) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, listed.tokens.tolist()), listed.mass.tolist(), strict=True))


def _compare(subject: Subject, law: Mapping[tuple[int, ...], float]) -> DraftCheck:
    return exact_draft_check(law, subject.declared, subject.tolerance)


def _sample_apart(
    subject: Subject,
    joint: Mapping[tuple[int, ...], FloatArray],
    drafted: Mapping[tuple[int, ...], float],
) -> float:
    """Total variation of what a plan samples from its conditionals, over all tuples; 0 else."""
    if subject.plan is None:
        return 0.0
    apart = 0.0
    for tokens, weight in drafted.items():
        law = subject.conditional(tokens)
        whole = np.zeros_like(subject.target) if isinstance(law, Failure) else weight * law
        apart += total_variation(joint.get(tokens, np.zeros_like(whole)), whole)
    return apart


def _report(
    subject: Subject,
    tally: _Tally,
    check: DraftCheck | None,
    *,
    size: int,
    method: str = "enumeration",
    slack: float = 0.0,
    repetitions: int = 0,
    sample_apart: float = 0.0,
) -> AuditReport:
    tolerance, failed = subject.tolerance, float(sum(tally.failures.values()))
    apart = total_variation(np.append(tally.output, failed), np.append(subject.target, 0.0))
    if apart - slack <= tolerance < apart + slack:
        raise NotEnumerableError(f"its exact law is known up to {slack:.2g} only")
    return AuditReport(
        method=method,
        target=subject.target,
        output=tally.output,
        acceptance=tally.acceptance,
        total_variation=apart,
        interval=(max(0.0, apart - slack), min(1.0, apart + slack)),
        tolerance=tolerance,
        failures=commonest(tally.failures),
        drafts=check,
        told_apart=subject.told_apart,
        size=size,
        repetitions=repetitions,
        sample_apart=sample_apart,
    )
