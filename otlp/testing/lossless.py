"""`assert_lossless`: audits of a rule on a grid of small problems, for a test suite.

The power of the audit is tested with a control: a version of the rule with a deliberate error,
which must fail the same audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import update_wrapper
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, DraftedTree, audit, audit_rounds
from otlp.auditing.audited_round_rule import PADDING
from otlp.auditing.auditor import DEFAULT_ROUNDS, DEFAULT_SETTINGS
from otlp.checks import check_number, whole_number
from otlp.distribution import FloatArray
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError

Drafting: TypeAlias = DraftedPaths | DraftedTree | Callable[[FloatArray], DraftScheme]
Tables: TypeAlias = list[FloatArray]
Cell: TypeAlias = tuple[int, str, str]
"""Vocabulary size, pattern of zeros, dtype."""

ZEROS = ("none", "in the draft", "in the target", "disjoint supports", "draft = target")
"""Patterns of zero probabilities; the last has no zeros, but equal draft and target."""

DENOMINATOR = 64
"""Probabilities are multiples of 1/64, which are exact in float16 and float64."""

POWER_FACTOR = 1.5
"""A sample must detect an error of `least_error` divided by this factor, with probability 90%."""


def assert_lossless(
    rule: Callable[..., Any],
    drafts: Drafting,
    *,
    vocab_sizes: Sequence[int] = (2, 3, 4),
    dtypes: Sequence[str] = ("float64", "float32"),
    least_error: float = 0.1,
    sampler: Callable[..., Any] | None = None,
    drafter: Callable[..., Any] | None = None,
    batch: int | None = None,
    settings: AuditSettings = DEFAULT_SETTINGS,
    seed: int = 0,
) -> tuple[AuditReport, ...]:
    """Raise AssertionError unless a verification rule is lossless on a grid of small problems.

    The grid has a problem with random models for each vocabulary size, and for the median size
    each pattern of zeros and each dtype of p and q.  The law of the rule is exact if its draws can
    be followed, and otherwise sampled and tested; see `otlp.audit`.

    Parameters
    ----------
    rule : callable
        A rule as for `otlp.audit_rounds`, or, over one token, for `otlp.audit`.
    drafts : DraftedPaths, DraftedTree, or callable
        The drafted paths or tree, or, for a rule over one token, a function from q to a draft
        scheme, such as ``lambda q: otlp.IID(q, n=2)``.
    vocab_sizes : sequence of int
    dtypes : sequence of str
        NumPy dtypes of p and q.
    least_error : float
        Total variation that a sample must be able to detect, and total variation of the control.
    sampler, drafter, batch
        See `otlp.audit_rounds`; must be None for a rule over one token.
    settings : otlp.auditing.AuditSettings
        Settings of each audit.  Default: 20,000 samples, and at most 20,000 paths.
    seed : int
        Random seed of the problems and the samples; the result is reproducible.

    Returns
    -------
    tuple of AuditReport
        The report of the control, which failed, and the reports of the problems.

    Raises
    ------
    AssertionError
        If the rule is not lossless, fails, or its drafts differ (with the problem and the report);
        if the control passes; or if a sample could not have detected `least_error`.
    InvalidInputError
        If an argument has the wrong type or range.

    Notes
    -----
    The control sometimes returns the token of lowest target probability; its total variation is
    `least_error`.  About ten audits are run, of one second each if the law is exact.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> from otlp.testing import assert_lossless
    >>> def rule(draft_tokens, p, q, rng):
    ...     token = draft_tokens[0]
    ...     if rng.random() * q[token] < p[token]:
    ...         return token
    ...     left = np.maximum(p - q, 0)
    ...     return rng.choice(len(p), p=left / left.sum())
    >>> reports = assert_lossless(rule, lambda q: otlp.IID(q, n=1), dtypes=["float64"])
    >>> [report.verdict.name for report in reports[:2]]
    ['NOT_LOSSLESS', 'LOSSLESS']
    """
    options: dict[str, Any] = {"sampler": sampler, "drafter": drafter, "batch": batch}
    sizes = _checked_sizes(rule, drafts, vocab_sizes, dtypes, least_error, options)
    settings = settings.filled(DEFAULT_ROUNDS)

    def audited(rule: Callable[..., Any], cell: Cell) -> AuditReport:
        size, zeros, dtype = cell
        run: dict[str, Any] = {"settings": settings, "rng": np.random.default_rng(seed)}
        if isinstance(drafts, DraftedPaths | DraftedTree):
            target, draft = _models(size, drafts.depth, drafts.most_siblings, zeros, seed)
            run |= options
            return audit_rounds(_converted(rule, dtype), target, draft, drafts, **run)
        (p, *_), (q,) = _models(size, 1, 1, zeros, seed)
        return audit(_converted(rule, dtype), p, drafts(q), **run)

    grid = list(_grid(sizes, dtypes))
    control = audited(_with_error(rule, least_error, drafts, batch), grid[0])
    # The rule is checked before the control, so that the error of a wrong rule is about the rule.
    reports = [_checked_report(audited(rule, cell), cell, least_error) for cell in grid]
    if control.passed:
        raise AssertionError(
            f"the control passed: an error with a total variation of {least_error} was not "
            f"detected; the rule must draw its random numbers only from rng\n{control}"
        )
    return control, *reports


def _checked_sizes(
    rule: object,
    drafts: object,
    vocab_sizes: Sequence[int],
    dtypes: Sequence[str],
    least_error: float,
    options: dict[str, Any],
) -> list[int]:
    """Return the vocabulary sizes; raise InvalidInputError if an argument is invalid."""
    rounds = isinstance(drafts, DraftedPaths | DraftedTree)
    sizes = [whole_number(size, "vocab_sizes", 2) for size in vocab_sizes]
    if not sizes or not dtypes or not callable(rule) or not (rounds or callable(drafts)):
        raise InvalidInputError(
            "pass a callable rule, its drafts (DraftedPaths, DraftedTree, or a callable from q to "
            "a draft scheme), and at least one vocabulary size and one dtype"
        )
    given = [name for name, value in options.items() if value is not None]
    if not rounds and given:
        raise InvalidInputError(
            f"{' and '.join(given)}: only for rounds; pass DraftedPaths or DraftedTree as drafts"
        )
    check_number("least_error", least_error, lambda x: 0.0 < x < 0.5, "be between 0 and 0.5")
    return sizes


def _checked_report(report: AuditReport, cell: Cell, least_error: float) -> AuditReport:
    """Return the report; raise AssertionError if it does not pass or the power is too low."""
    problem = f"{cell[0]} tokens, zeros: {cell[1]}, {cell[2]}"
    if not report.passed:
        raise AssertionError(f"{problem}\n{report}")
    # If the target has only one text, any other text is proof of an error.
    tested = report.test is not None and np.count_nonzero(report.target) > 1
    detectable = report.test.detectable if report.test and tested else 0.0
    if POWER_FACTOR * detectable > least_error:
        raise AssertionError(
            f"{problem}: {report.size:,} samples detect a total variation of {detectable:.3f}, but "
            f"{least_error / POWER_FACTOR:.3f} is required; pass more samples, "
            f"settings=AuditSettings(samples=...), or a larger least_error\n{report}"
        )
    return report


def _grid(sizes: Sequence[int], dtypes: Sequence[str]) -> Iterator[Cell]:
    middle = sorted(sizes)[len(sizes) // 2]
    yield from ((size, ZEROS[0], dtypes[0]) for size in sizes)
    yield from ((middle, zeros, dtypes[0]) for zeros in ZEROS[1:])
    yield from ((middle, ZEROS[0], dtype) for dtype in dtypes[1:])


def _models(size: int, depth: int, siblings: int, zeros: str, seed: int) -> tuple[Tables, Tables]:
    """Return tables of target and draft; the draft has at least `siblings` possible tokens."""
    rng = np.random.default_rng((seed, size))
    target_support, draft_support = [*range(size)], [*range(size)]
    if zeros in ("in the draft", "disjoint supports"):
        draft_support = draft_support[: max(siblings, size - 1)]
    if zeros == "in the target":
        target_support = target_support[1:]
    elif zeros == "disjoint supports":
        target_support = target_support[len(draft_support) :] or target_support[-1:]
    target = [random_laws(rng, size, t, target_support) for t in range(depth + 1)]
    draft = [random_laws(rng, size, t, draft_support) for t in range(depth)]
    return target, target[:depth] if zeros == ZEROS[-1] else draft


def random_laws(rng: np.random.Generator, size: int, length: int, kept: list[int]) -> FloatArray:
    """Return random laws over the kept tokens, at least 1/64 each, after prefixes of a length."""
    numerators = np.zeros((size**length, size))
    rest = DENOMINATOR - len(kept)
    shares = rng.dirichlet(np.ones(len(kept)), size**length)
    numerators[:, kept] = 1 + np.array([rng.multinomial(rest, share) for share in shares])
    return (numerators / DENOMINATOR).reshape((size,) * (length + 1))


def _converted(rule: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """Return the rule with p and q converted to a dtype."""

    def converted(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        return rule(draft_tokens, p.astype(dtype), q.astype(dtype), rng)

    return update_wrapper(converted, rule)


def _with_error(
    rule: Callable[..., Any], error: float, drafts: Drafting, batch: int | None
) -> Callable[..., Any]:
    """Return the rule with a deliberate error: sometimes the least likely target token first."""
    rounds = isinstance(drafts, DraftedPaths | DraftedTree)

    def with_error(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        laws = np.asarray(p, dtype=np.float64)
        firsts = laws.reshape(1 if batch is None else len(laws), -1, laws.shape[-1])[:, 0]
        tokens, shares = firsts.argmin(axis=1), error / (1.0 - firsts.min(axis=1))
        if batch is None:
            token = int(tokens[0])
            if rng.random() < shares[0]:
                return [token] if rounds else token
            return rule(draft_tokens, p, q, rng)
        output = np.asarray(rule(draft_tokens, p, q, rng)).copy()
        wrong = rng.random(len(output)) < shares
        output[wrong] = PADDING
        output[wrong, 0] = tokens[wrong]
        return output

    return update_wrapper(with_error, rule)
