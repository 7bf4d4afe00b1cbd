"""Test of real calls of a rule against the enumerated distribution.

An enumeration replaces the random numbers of a rule, passes one row, and runs the rule a few
thousand times.  Real calls show what an enumeration cannot: the precision of a draw, a seed, a
call that NumPy rejects, a different result with a real generator, an error in another row of a
batch, a change after many calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from otlp.auditing.audited_rule import AuditedRule, Output, Step
from otlp.auditing.enumeration import ExactDistribution, NotEnumerableError
from otlp.auditing.gtest import GTest, g_test
from otlp.auditing.settings import AuditRun
from otlp.auditing.torch_source import seeded_torch
from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, total_variation

CALLS = 10_000
"""Number of real rounds after an enumeration."""

BATCH = 256
"""Rounds per progress report."""

ROUNDING = 2.0**-20
"""Probability allowed for rounding: a few steps of 2^-24, the resolution of draws in float32."""


class RefutedError(NotEnumerableError):
    """Real calls do not follow the enumerated distribution."""


def play_rounds(
    audited: AuditedRule, settings: AuditRun, rounds: int, step: int | None = None
) -> tuple[IntArray, list[Output]]:
    """Play rounds in batches of `step`; return the drafted tokens and the outputs.

    By default, `step` is the batch size of the rule.  For a rule without batches, it is 256, or 1
    with a draft sampler: the rule may read numbers that the sampler stored in the same round.

    Raises
    ------
    SizeLimitError
        If the drafted tuples would need more than 2 GiB.
    """
    width, step = audited.width, step or audited.batch or (1 if audited.sampler else BATCH)
    check_memory(f"{rounds:,} tuples of n = {width:,} drafts", 16.0 * rounds * width, MEMORY_LIMIT)
    outputs: list[Output] = []
    tokens = np.empty((rounds, width), dtype=np.int64)
    with seeded_torch(settings.rng):
        for start in range(0, rounds, step):
            rows = tokens[start : start + step]
            rows[:] = audited.draft(len(rows), settings.rng)
            outputs += audited.play(rows, settings.rng)
            if start % BATCH < step:
                settings.progress("sampling", min(1.0, (start + step) / rounds))
    return tokens, outputs


def check_real_calls(
    audited: AuditedRule, settings: AuditRun, law: ExactDistribution[Step], texts: FloatArray
) -> dict[str, GTest]:
    """Play 10,000 rounds and test them against an enumerated distribution.

    Parameters
    ----------
    audited : AuditedRule
    settings : AuditRun
        The tests share its `false_alarm_rate`.
    law : ExactDistribution
        Distribution of drafted tokens and output.
    texts : ndarray
        Distribution of texts under `law`; see `AuditedRule.completed`.

    Returns
    -------
    dict of str to GTest
        The tests by the quantity counted.  The first is the test of the outputs, whose power is
        reported.

    Raises
    ------
    RefutedError
        If a test rejects.

    Notes
    -----
    Rows of a batch with renamed tokens (see `AuditedRule.token_shifts`) are not enumerated.  If
    the rule is lossless, their texts follow the target.
    """
    tokens, outputs = play_rounds(audited, settings, CALLS)
    shifts = audited.token_shifts(audited.batch or 1)
    own = shifts[np.arange(CALLS) % shifts.size] == 0
    steps = [
        Step(tuple(row), output)
        for row, output, kept in zip(tokens.tolist(), outputs, own, strict=True)
        if kept
    ]
    target = audited.texts()
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
        counts = np.bincount(audited.cells(others, settings.rng), minlength=target.size + 1)
        tests["texts of renamed rows"] = g_test(counts, np.append(target, 0.0), share)
    for name, test in tests.items():
        if test.rejected:
            finding = f"p-value {test.p_value:.2g}"
            if test.impossible:
                finding = f"{test.impossible:,} have probability 0"
            raise RefutedError(
                f"real calls do not follow the enumerated distribution (G-test of {test.samples:,} "
                f"{name}: {finding}): draws of low precision, a seed, state, or rows that interact"
            )
    return tests


def _test(
    results: Sequence[Any], law: Mapping[Any, float], unexplored: float, rate: float
) -> GTest:
    """Return the G-test of results; ignore results outside the law if rounding can explain them."""
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
