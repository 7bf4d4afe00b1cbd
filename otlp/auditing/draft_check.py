"""Comparison of drafted tuples with the declared draft scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from otlp.auditing.gtest import GTest, g_test
from otlp.distribution import FloatArray, IntArray, Mask, logarithms, sum_by
from otlp.drafts import DraftScheme

MOST_TUPLES = 200_000
"""Schemes with more tuples are tested by the sets of tokens that occur in a tuple."""

HEAVY_TOKENS = 6
"""Number of most likely tokens that are distinguished in the test of sets."""


@dataclass(frozen=True, eq=False)
class DraftCheck:
    """Comparison of the drafts with the declared scheme.

    Attributes
    ----------
    agrees : bool
        False if the drafts follow a different distribution.
    declared : str
        The declared scheme.
    total_variation : float
        Total variation between the distribution of the drafted tuples and the declared
        distribution; NaN if the distribution was not enumerated.
    impossible : int or float
        Drafted tuples of declared probability zero: their number, or their probability if the
        distribution was enumerated.
    example : tuple of int
        One of the tuples of declared probability zero.
    repeats, expected_repeats : float
        Fraction of the tuples with a repeated token, and the fraction expected under the scheme
        (NaN if unknown); both NaN for paths and trees.
    tests : mapping of str to GTest
        The tests by the quantity counted; empty if the distribution was enumerated.

    Examples
    --------
    >>> import otlp
    >>> def first_always(draft_tokens, p, q, rng):
    ...     return int(draft_tokens[0])
    >>> def never_twice(rng):
    ...     first = int(rng.random() < 0.5)
    ...     return [first, 1 - first]
    >>> declared = otlp.IID([0.5, 0.5], n=2)
    >>> report = otlp.audit(first_always, [0.5, 0.5], never_twice, declared=declared)
    >>> report.verdict.name, report.drafts.agrees
    ('DRAFTS_DIFFER', False)
    """

    agrees: bool
    declared: str
    impossible: float
    example: tuple[int, ...]
    total_variation: float = math.nan
    repeats: float = math.nan
    expected_repeats: float = math.nan
    tests: Mapping[str, GTest] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        verb = "follow" if self.agrees else "do NOT follow"
        lines = [f"The drafts {verb} {self.declared}."]
        exact = not math.isnan(self.total_variation)
        if exact:
            lines.append(f"  total variation of the drafted tuples {self.total_variation:.3g}")
        for name, test in self.tests.items():
            lines.append(f"  {name}: {test}; detects a total variation of {test.detectable:.2g}")
        if self.impossible:
            kind = "probability" if exact else "number"
            lines.append(
                f"  tuples of declared probability 0, such as {list(self.example)}: "
                f"{kind} {self.impossible:.4g}"
            )
        if not math.isnan(self.expected_repeats):
            lines.append(
                f"  tuples with a repeated token: {self.repeats:.4g}, "
                f"expected {self.expected_repeats:.4g}"
            )
        return "\n".join(lines)


def exact_draft_check(
    law: Mapping[tuple[int, ...], float], declared: DraftScheme, tolerance: float
) -> DraftCheck:
    """Compare the exact distribution of the drafted tuples with the declared distribution.

    Parameters
    ----------
    law : mapping of tuple to probability
    declared : DraftScheme
    tolerance : float
        Maximum total variation that counts as agreement.
    """
    tokens = np.array(list(law), dtype=np.int64).reshape(len(law), declared.n)
    mass = np.array(list(law.values()))
    wanted = declared.probability(tokens)
    apart = float(np.maximum(mass - wanted, 0.0).sum())
    never = wanted <= 0.0
    return DraftCheck(
        agrees=apart <= tolerance,
        declared=repr(declared),
        total_variation=apart,
        impossible=float(mass[never].sum()),
        example=first_of(tokens, never),
        repeats=float(mass[_repeating(tokens)].sum()),
        expected_repeats=_expected_repeats(declared),
    )


def check_drafts(
    tokens: IntArray, declared: DraftScheme, rate: float, rng: np.random.Generator
) -> DraftCheck:
    """Test drafted tuples against the declared distribution.

    Parameters
    ----------
    tokens : ndarray of int, shape (N, n)
        Independent draws of the tuple.
    declared : DraftScheme
    rate : float
        False-alarm rate of all tests together.
    rng : numpy.random.Generator
        Selects a position in each tuple if there are too many tuples to enumerate.

    Returns
    -------
    DraftCheck

    Notes
    -----
    Two or more G-tests.  One tests the token at each position (or at a random position, whose law
    is `DraftScheme.mean_draft` for every scheme).  Another tests the whole tuple; beyond 200,000
    tuples, it tests the set of the six most likely tokens (and "any other token") that occur in
    the tuple, whose law follows from `DraftScheme.mass_within` for every scheme and size.  A tuple
    of declared probability zero is proof without a test.
    """
    counted = _positions(tokens, declared, rng)
    if declared.tuple_count() <= MOST_TUPLES:
        counted["tuples"] = _tuples(tokens, declared)
    else:
        counted[f"sets of the {HEAVY_TOKENS} most likely tokens"] = _touched(tokens, declared)
    expected_repeats = _expected_repeats(declared)
    repeating = _repeating(tokens)
    if 0.0 < expected_repeats < 1.0:
        law = np.array([1.0 - expected_repeats, expected_repeats])
        counted["repeated tokens"] = np.bincount(repeating, minlength=2), law
    share = rate / len(counted)
    tests = {name: g_test(counts, law, share) for name, (counts, law) in counted.items()}
    never = _impossible(tokens, declared)
    return DraftCheck(
        agrees=not (never.any() or any(test.rejected for test in tests.values())),
        declared=repr(declared),
        impossible=int(np.count_nonzero(never)),
        example=first_of(tokens, never),
        repeats=float(repeating.mean()),
        expected_repeats=expected_repeats,
        tests=tests,
    )


Counted = dict[str, tuple[IntArray, FloatArray]]


def _positions(tokens: IntArray, declared: DraftScheme, rng: np.random.Generator) -> Counted:
    """Count the tokens at each position; return the counts with the law at the position."""
    size = declared.vocab_size
    if declared.tuple_count() > MOST_TUPLES:
        positions = rng.integers(declared.n, size=len(tokens))
        picked = tokens[np.arange(len(tokens)), positions]
        return {"a random position": (np.bincount(picked, minlength=size), declared.mean_draft)}
    listed = declared.enumerate_tuples()
    return {
        f"position {position}": (
            np.bincount(tokens[:, position], minlength=size),
            sum_by(listed.tokens[:, position], listed.mass, size),
        )
        for position in range(declared.n)
    }


def _tuples(tokens: IntArray, declared: DraftScheme) -> tuple[IntArray, FloatArray]:
    """Count the tuples; return the counts and the law, which is 0 for undeclared tuples."""
    listed = declared.enumerate_tuples()
    every, index = np.unique(np.concatenate((listed.tokens, tokens)), axis=0, return_inverse=True)
    index = index.reshape(-1)
    law = np.zeros(len(every))
    law[index[: len(listed.mass)]] = listed.mass
    return np.bincount(index[len(listed.mass) :], minlength=len(every)), law / law.sum()


def _touched(tokens: IntArray, declared: DraftScheme) -> tuple[IntArray, FloatArray]:
    """Count which of the most likely tokens (and "any other") occur; return counts and law."""
    heavy = np.argsort(-declared.mean_draft, kind="stable")[:HEAVY_TOKENS]
    bucket = np.full(declared.vocab_size, heavy.size)
    bucket[heavy] = np.arange(heavy.size)
    buckets = heavy.size + 1
    touched = np.bitwise_or.reduce(1 << bucket[tokens], axis=1)
    within = [0.0]  # The empty set contains no draft.
    for chosen in range(1, 1 << buckets):
        within.append(declared.mass_within((chosen >> bucket & 1).astype(bool)))
    # Differences over the subset lattice turn P(all drafts inside) into P(exactly these occur).
    law = np.reshape(within, (2,) * buckets)
    for axis in range(buckets):
        law = np.diff(law, axis=axis, prepend=0.0)
    law = np.where(law > 1e-12, law, 0.0).ravel()
    counts = np.bincount(touched, minlength=law.size)
    # Outcomes whose law is zero up to rounding are removed from the counts and the law.
    counts[law == 0.0] = 0
    return counts, law / law.sum()


def _impossible(tokens: IntArray, declared: DraftScheme) -> Mask:
    """Mask of tuples of declared probability zero, excluding products that underflow."""
    weight = logarithms(declared.mean_draft)[tokens].sum(axis=1)
    result: Mask = (declared.probability(tokens) <= 0.0) & ((weight > -600.0) | np.isinf(weight))
    return result


def _repeating(tokens: IntArray) -> Mask:
    """Mask of tuples with a repeated token."""
    ordered = np.sort(tokens, axis=1)
    result: Mask = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return result


def _expected_repeats(declared: DraftScheme) -> float:
    """Return the probability of a tuple with a repeated token; NaN if unknown."""
    known = declared.repeat_probability()
    if math.isnan(known) and declared.tuple_count() <= MOST_TUPLES:
        listed = declared.enumerate_tuples()
        return float(listed.mass[_repeating(listed.tokens)].sum())
    return known


def first_of(tokens: IntArray, chosen: Mask) -> tuple[int, ...]:
    """Return the first chosen tuple; empty if none is chosen."""
    return tuple(tokens[int(np.argmax(chosen))].tolist()) if chosen.any() else ()
