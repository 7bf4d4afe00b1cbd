"""How often a rule's output is a drafted token: drawn, on several problems at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any

import numpy as np

from otlp.auditing.gtest import g_test, total_variation_interval
from otlp.auditing.subject import Failure
from otlp.auditing.token_subject import token_subject
from otlp.distribution import FloatArray, Mask
from otlp.problem import Problem

BATCH = 500
"""Drafts of each problem that are verified before the interval is looked at again."""

LEAST = 2 * BATCH
"""Drafts of each problem, whatever time they take."""

RATE = 1e-6
"""Of false alarms in all problems."""

SURE = 1.959964
"""Standard deviations on either side of 95%."""


@dataclass(frozen=True, eq=False)
class SampledAcceptance:
    """Acceptances by drawing, with halves of 95% intervals.

    Attributes
    ----------
    each, each_error : ndarray, shape (problems,)
    error : float
        Of the mean over the problems.
    draws : int
        On each problem.
    deviating : ndarray of bool, shape (problems,)
        Where the outputs do not follow the target, by a G-test of false-alarm rate `RATE` in all.
    seconds : float
        Median of the calls.
    lost : ndarray, shape (problems, 2)
        Bounds on the total variation of the outputs from the target, 95% for all problems at once
        where the number of draws is given beforehand; here the acceptance decides when to stop.
    """

    each: FloatArray
    each_error: FloatArray
    error: float
    draws: int
    deviating: Mask
    seconds: float
    lost: FloatArray


def sample_acceptance(
    rule: Callable[..., Any],
    problems: Sequence[Problem],
    precision: float,
    seconds: float,
    rng: np.random.Generator,
) -> SampledAcceptance:
    """Verify drafts of each problem until the mean is known, or the time is over.

    Parameters
    ----------
    rule : callable
        As `otlp.audit` takes it; an output that is no token counts as not accepted.
    problems : sequence of Problem
    precision : float
        Half of the 95% interval of the mean over the problems that is enough.
    seconds : float
        No batch begins after so many.
    rng : numpy.random.Generator

    Notes
    -----
    Two successes and two failures are added to the counts (Agresti and Coull 1998), so that an
    interval has a width where all were accepted.
    """
    took: list[float] = []

    @wraps(rule)
    def timed(*given: Any) -> Any:
        start = perf_counter()
        try:
            return rule(*given)
        finally:
            took.append(perf_counter() - start)

    subjects = [token_subject(timed, one.target, one.drafts, None, None) for one in problems]
    accepted, draws, begun = np.zeros(len(subjects)), 0, perf_counter()
    # two halves; the last cell is that of outputs that are no token
    counts = [np.zeros((2, one.vocab_size + 1), dtype=np.int64) for one in problems]
    while True:
        half = draws // BATCH % 2
        for at, subject in enumerate(subjects):
            drafted = subject.draft(BATCH, rng)
            for tokens, output in zip(drafted.tolist(), subject.play(drafted, rng), strict=True):
                token = -1 if isinstance(output, Failure) else output[0]
                counts[at][half, token] += 1
                accepted[at] += token in tokens
        draws += BATCH
        share = (accepted + 2.0) / (draws + 4.0)
        errors = SURE * np.sqrt(share * (1.0 - share) / (draws + 4.0))
        error = float(np.sqrt(np.sum(errors**2)) / len(subjects))
        late = perf_counter() - begun > seconds
        if draws >= LEAST and (error <= precision or late):
            laws = [np.append(one.target, 0.0) for one in problems]
            seen = list(zip(counts, laws, strict=True))
            rate, sure = RATE / len(problems), 1.0 - 0.05 / len(problems)
            tests = [g_test(both.sum(axis=0), law, rate) for both, law in seen]
            deviating = np.array([test.rejected for test in tests], dtype=np.bool_)
            lost = [total_variation_interval(both[0], both[1], law, sure) for both, law in seen]
            seconds = float(np.median(took))
            share = accepted / draws
            return SampledAcceptance(
                share, errors, error, draws, deviating, seconds, np.array(lost)
            )
