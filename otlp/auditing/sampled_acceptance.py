"""Sampled acceptance of a rule on several problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any

import numpy as np

from otlp.auditing.audited_rule import Failure
from otlp.auditing.audited_token_rule import audited_token_rule
from otlp.auditing.gtest import g_test, total_variation_interval
from otlp.distribution import FloatArray, Mask
from otlp.problem import Problem

BATCH = 500
"""Drafts per problem between two checks of the interval."""

LEAST = 2 * BATCH
"""Minimum number of drafts per problem, regardless of the time limit."""

RATE = 1e-6
"""False-alarm rate over all problems."""

SURE = 1.959964
"""Half width of a 95% interval, in standard deviations."""


@dataclass(frozen=True, eq=False)
class SampledAcceptance:
    """Acceptance of a rule, estimated by sampling; errors are half widths of 95% intervals.

    Attributes
    ----------
    each, each_error : ndarray, shape (problems,)
        Acceptance on each problem, and its error.
    error : float
        Error of the mean over the problems.
    draws : int
        Number of drafts per problem.
    deviating : ndarray of bool, shape (problems,)
        Problems whose outputs do not follow the target by a G-test; `RATE` is the false-alarm rate
        of all tests together.
    seconds : float
        Median time per call, in seconds.
    lost : ndarray, shape (problems, 2)
        Bounds on the total variation between the outputs and the target.  The confidence of 95%
        for all problems holds for a fixed number of draws; here the acceptance determines when
        sampling stops.
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
    """Verify drafts of each problem until the mean is precise enough or the time limit is reached.

    Parameters
    ----------
    rule : callable
        A rule as for `otlp.audit`; an output that is not a token counts as not accepted.
    problems : sequence of Problem
    precision : float
        Sampling stops when the error of the mean over the problems is at most this.
    seconds : float
        Time limit in seconds; no batch starts later.
    rng : numpy.random.Generator

    Notes
    -----
    Two successes and two failures are added to the counts (Agresti and Coull 1998), so that the
    interval has a positive width if all drafts are accepted.
    """
    took: list[float] = []

    @wraps(rule)
    def timed(*arguments: Any) -> Any:
        start = perf_counter()
        try:
            return rule(*arguments)
        finally:
            took.append(perf_counter() - start)

    rules = [audited_token_rule(timed, one.target, one.drafts, None, None) for one in problems]
    accepted, draws, begun = np.zeros(len(rules)), 0, perf_counter()
    # Counts of two halves of the sample; the last cell counts outputs that are not tokens.
    counts = [np.zeros((2, one.vocab_size + 1), dtype=np.int64) for one in problems]
    while True:
        half = draws // BATCH % 2
        for at, audited in enumerate(rules):
            drafted = audited.draft(BATCH, rng)
            for tokens, output in zip(drafted.tolist(), audited.play(drafted, rng), strict=True):
                token = -1 if isinstance(output, Failure) else output[0]
                counts[at][half, token] += 1
                accepted[at] += token in tokens
        draws += BATCH
        share = (accepted + 2.0) / (draws + 4.0)
        errors = SURE * np.sqrt(share * (1.0 - share) / (draws + 4.0))
        error = float(np.sqrt(np.sum(errors**2)) / len(rules))
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
