"""Rounds as a rule really plays them, and whether they follow the law that was enumerated.

An enumeration replaces the random numbers of a rule, hands it one row, and runs it a few thousand
times.  What that hides shows in real calls: the precision of a draw, a seed, a call that NumPy
refuses, another answer to a real generator, a second row, a late change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from otlp.auditing.enumeration import ExactDistribution, NotEnumerableError
from otlp.auditing.gtest import GTest, g_test
from otlp.auditing.settings import AuditRun
from otlp.auditing.subject import Output, Progress, Step, Subject
from otlp.auditing.torch_source import seeded_torch
from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, total_variation

CALLS = 10_000
"""Rounds that are played for real after an enumeration."""

BATCH = 256
"""Rounds between two reports of progress."""

ROUNDING = 2.0**-20
"""Probability that rounding is granted: a few of the steps of 2^-24 that draws in float32 have."""


class RefutedError(NotEnumerableError):
    """Real calls do not follow the law that was enumerated."""


def play_rounds(
    subject: Subject,
    rounds: int,
    rng: np.random.Generator,
    progress: Progress,
    step: int | None = None,
) -> tuple[IntArray, list[Output]]:
    """Drafted tokens and outputs of many rounds, in batches of as many rows as the rule takes.

    `step` rounds are drafted before they are verified, by default as many as that.

    Raises
    ------
    SizeLimitError
        If the drafted tuples would take more than 2 GiB.
    """
    width, step = subject.width, step or subject.batch or BATCH
    check_memory(f"{rounds:,} tuples of n = {width:,} drafts", 16.0 * rounds * width, MEMORY_LIMIT)
    outputs: list[Output] = []
    tokens = np.empty((rounds, width), dtype=np.int64)
    with seeded_torch(rng):
        for start in range(0, rounds, step):
            rows = tokens[start : start + step]
            rows[:] = subject.draft(len(rows), rng)
            outputs += subject.play(rows, rng)
            progress("sampling", min(1.0, (start + step) / rounds))
    return tokens, outputs


def hold_real_calls(
    subject: Subject, settings: AuditRun, law: ExactDistribution[Step], texts: FloatArray
) -> dict[str, GTest]:
    """Play ten thousand rounds, and test them against an enumerated law.

    Parameters
    ----------
    subject : Subject
    settings : AuditRun
        Whose `false_alarm_rate` the tests share.
    law : ExactDistribution
        Of drafted tokens and output.
    texts : ndarray
        The law of texts that follows; see `Subject.completed`.

    Returns
    -------
    dict of str to GTest
        By what was counted.  The outputs come first: their test says what would have been found.

    Raises
    ------
    RefutedError
        If one of them rejects.

    Notes
    -----
    Rows of a batch whose tokens are renamed (see `Subject.renaming`) follow no law that was
    enumerated; where the rule was found to be lossless, their texts follow the target's.
    """
    tokens, outputs = play_rounds(subject, CALLS, settings.rng, settings.progress)
    turns = subject.renaming(subject.batch or 1)
    own = turns[np.arange(CALLS) % turns.size] == 0
    steps = [
        Step(tuple(row), output)
        for row, output, kept in zip(tokens.tolist(), outputs, own, strict=True)
        if kept
    ]
    target = subject.texts()
    renamed = not own.all() and total_variation(texts, target) <= settings.tolerance
    share = settings.false_alarm_rate / (2 + renamed)
    marginal: defaultdict[Output, float] = defaultdict(float)
    for step, weight in law.weights.items():
        marginal[step.output] += weight
    tests = {
        "outputs": _test([step.output for step in steps], marginal, law.unexplored, share),
        "outputs with their drafts": _test(steps, law.weights, law.unexplored, share),
    }
    if renamed:
        others = [output for output, kept in zip(outputs, own, strict=True) if not kept]
        counts = np.bincount(subject.cells(others, settings.rng), minlength=target.size + 1)
        tests["texts of renamed rows"] = g_test(counts, np.append(target, 0.0), share)
    for name, test in tests.items():
        if test.rejected:
            off = f"p-value {test.p_value:.2g}"
            if test.impossible:
                off = f"{test.impossible:,} are not in it"
            raise RefutedError(
                f"real calls do not follow the law that was enumerated (G-test of {test.samples:,} "
                f"{name}: {off}): draws of low precision, a seed, state, or rows that mix"
            )
    return tests


def _test(
    results: Sequence[Any], law: Mapping[Any, float], unexplored: float, rate: float
) -> GTest:
    """The G-test of results; of those that the law lacks, more than rounding brings are proof."""
    seen = Counter(results)
    counts = np.array([seen[result] for result in law])
    unknown = len(results) - int(counts.sum())
    chance = float(special.bdtrc(unknown - 1, len(results), unexplored + ROUNDING))
    mass = np.array(list(law.values()))
    return g_test(
        np.append(counts, unknown if chance < 0.5 * rate else 0),
        np.append(mass / mass.sum(), 0.0),
        0.5 * rate,
    )
