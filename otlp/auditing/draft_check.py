"""Whether drafted tuples follow the scheme that they are said to follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from otlp.auditing.gtest import GTest, g_test
from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import DraftScheme

MOST_TUPLES = 200_000
"""Schemes with more tuples than this are tested through the sets of tokens that they touch."""

HEAVY_TOKENS = 6
"""The likeliest drafted tokens, which stand for themselves in that test."""


@dataclass(frozen=True, eq=False)
class DraftCheck:
    """Whether the drafts follow the declared scheme.

    Attributes
    ----------
    agrees : bool
        False if the drafts were found to follow another distribution.
    declared : str
        The declared scheme.
    total_variation : float
        Distance of the distribution of the drafted tuples from the declared one; NaN if it was not
        enumerated.
    impossible : int or float
        Drafted tuples that the scheme never drafts: their number, or their probability if the law
        was enumerated.
    example : tuple of int
        One of those tuples.
    repeats, expected_repeats : float
        Share of the tuples that hold a token twice, and the share that the scheme gives (NaN if
        that is not known); both NaN for paths and trees.
    tests : mapping of str to GTest
        By what was counted; empty if the distribution was enumerated.

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
        """Say in a few lines what was found."""
        verb = "follow" if self.agrees else "do NOT follow"
        lines = [f"The drafts {verb} {self.declared}."]
        exact = not math.isnan(self.total_variation)
        if exact:
            lines.append(f"  total variation of the drafted tuples {self.total_variation:.3g}")
        for name, test in self.tests.items():
            lines.append(f"  {name}: {test}; detects a total variation of {test.detectable:.2g}")
        if self.impossible:
            often = "with probability" if exact else "times"
            lines.append(
                f"  tuples that the scheme never drafts, such as {list(self.example)}: "
                f"{often} {self.impossible:.4g}"
            )
        if not math.isnan(self.expected_repeats):
            lines.append(
                f"  tuples that hold a token twice: {self.repeats:.4g}, "
                f"the scheme has {self.expected_repeats:.4g}"
            )
        return "\n".join(lines)


def exact_draft_check(
    law: Mapping[tuple[int, ...], float], declared: DraftScheme, tolerance: float
) -> DraftCheck:
    """Compare the exact distribution of the drafted tuples with the declared one.

    Parameters
    ----------
    law : mapping of tuple to probability
    declared : DraftScheme
    tolerance : float
        Largest total variation that counts as agreement.
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
        False-alarm rate of all tests here together.
    rng : numpy.random.Generator
        Picks a place in each tuple, where there are too many tuples to tell each place's law.

    Returns
    -------
    DraftCheck

    Notes
    -----
    Two or more G-tests: the token at each place (or at a random place, whose law is
    `DraftScheme.mean_draft` whatever the scheme), and the whole tuple, or, where there are more
    than 200,000 tuples, which of the six likeliest tokens were drafted and whether any other was;
    the law of that set follows from `DraftScheme.mass_within`, for any scheme at any size.  A
    tuple of declared probability zero is proof without a test.
    """
    counted = _places(tokens, declared, rng)
    if declared.tuple_count() <= MOST_TUPLES:
        counted["tuples"] = _tuples(tokens, declared)
    else:
        counted[f"sets of the {HEAVY_TOKENS} likeliest tokens"] = _touched(tokens, declared)
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


def _places(tokens: IntArray, declared: DraftScheme, rng: np.random.Generator) -> Counted:
    """Tokens counted by place, with the distribution at that place."""
    size = declared.vocab_size
    if declared.tuple_count() > MOST_TUPLES:
        places = rng.integers(declared.n, size=len(tokens))
        picked = tokens[np.arange(len(tokens)), places]
        return {"a random place": (np.bincount(picked, minlength=size), declared.mean_draft)}
    listed = declared.enumerate_tuples()
    return {
        f"place {place}": (
            np.bincount(tokens[:, place], minlength=size),
            sum_by(listed.tokens[:, place], listed.mass, size),
        )
        for place in range(declared.n)
    }


def _tuples(tokens: IntArray, declared: DraftScheme) -> tuple[IntArray, FloatArray]:
    """Tuples counted, and their law; those that are not in it are one outcome of probability 0."""
    listed = declared.enumerate_tuples()
    every, index = np.unique(np.concatenate((listed.tokens, tokens)), axis=0, return_inverse=True)
    index = index.reshape(-1)
    law = np.zeros(len(every))
    law[index[: len(listed.mass)]] = listed.mass
    return np.bincount(index[len(listed.mass) :], minlength=len(every)), law / law.sum()


def _touched(tokens: IntArray, declared: DraftScheme) -> tuple[IntArray, FloatArray]:
    """Which of the likeliest tokens, and whether any other one, the tuples hold; and the law."""
    heavy = np.argsort(-declared.mean_draft, kind="stable")[:HEAVY_TOKENS]
    bucket = np.full(declared.vocab_size, heavy.size)
    bucket[heavy] = np.arange(heavy.size)
    buckets = heavy.size + 1
    touched = np.bitwise_or.reduce(1 << bucket[tokens], axis=1)
    within = [0.0]  # no draft is inside the empty set
    for chosen in range(1, 1 << buckets):
        within.append(declared.mass_within((chosen >> bucket & 1).astype(bool)))
    # From "all drafts inside" to "exactly these touched": differences over the subset lattice.
    law = np.reshape(within, (2,) * buckets)
    for axis in range(buckets):
        law = np.diff(law, axis=axis, prepend=0.0)
    law = np.where(law > 1e-12, law, 0.0).ravel()
    counts = np.bincount(touched, minlength=law.size)
    # What the differences cannot tell from zero is left out on both sides.
    counts[law == 0.0] = 0
    return counts, law / law.sum()


def _impossible(tokens: IntArray, declared: DraftScheme) -> Mask:
    """Tuples of declared probability zero, and not because a long product underflows."""
    with np.errstate(divide="ignore"):
        weight = np.log(declared.mean_draft)[tokens].sum(axis=1)
    result: Mask = (declared.probability(tokens) <= 0.0) & ((weight > -600.0) | np.isinf(weight))
    return result


def _repeating(tokens: IntArray) -> Mask:
    """Tuples that hold a token twice."""
    ordered = np.sort(tokens, axis=1)
    result: Mask = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return result


def _expected_repeats(declared: DraftScheme) -> float:
    """Probability that a tuple holds a token twice; NaN if that is not known."""
    known = declared.repeat_probability()
    if math.isnan(known) and declared.tuple_count() <= MOST_TUPLES:
        listed = declared.enumerate_tuples()
        return float(listed.mass[_repeating(listed.tokens)].sum())
    return known


def first_of(tokens: IntArray, chosen: Mask) -> tuple[int, ...]:
    """The first of the chosen tuples; empty if there is none."""
    return tuple(tokens[int(np.argmax(chosen))].tolist()) if chosen.any() else ()
