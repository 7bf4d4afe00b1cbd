"""`assert_lossless`: an audit of a rule on a grid of small problems, for a test suite.

A verdict is only worth what the test could have found: a rule that is spoiled on purpose goes
through the same audit first, and must fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from typing import Any, TypeAlias

import numpy as np

from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, DraftedTree, audit, audit_rounds
from otlp.auditing.auditor import OF_ROUNDS, USUAL
from otlp.auditing.round_subject import PADDING
from otlp.checks import check_number, whole_number
from otlp.distribution import FloatArray
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError

Drafting: TypeAlias = DraftedPaths | DraftedTree | Callable[[FloatArray], DraftScheme]
Tables: TypeAlias = list[FloatArray]
Cell: TypeAlias = tuple[int, str, str]
"""Tokens, zeros, dtype."""

ZEROS = ("none", "in the draft", "in the target", "apart", "draft = target")
"""Where probabilities are zero; no token in common; and nothing to correct."""

GRAIN = 64
"""Probabilities are whole multiples of 1/64: the same numbers in float16 and in float64."""

SURER = 1.5
"""A sample must be able to find, nine times in ten, an error so many times less than is planted."""


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
    settings: AuditSettings = USUAL,
    seed: int = 0,
) -> tuple[AuditReport, ...]:
    """Fail unless a verification rule keeps the target's distribution.

    Every number of tokens with random models, and of the middle number every pattern of zeros and
    every dtype of p and q.  Where the rule's draws can be followed the law is exact, and otherwise
    sampled and tested; see `otlp.audit`.

    Parameters
    ----------
    rule : callable
        As `otlp.audit_rounds` takes it, or, of one token, `otlp.audit`.
    drafts : DraftedPaths, DraftedTree, or callable
        What is drafted: of rounds, or for a rule over one token from q to its scheme,
        ``lambda q: otlp.IID(q, n=2)``.
    vocab_sizes : sequence of int
    dtypes : sequence of str
        What p and q are handed over as, by NumPy's names.
    least_error : float
        Total variation that a sample must be able to find: that much is planted in the control.
    sampler, drafter, batch
        See `otlp.audit_rounds`; of one token none is taken.
    settings : otlp.auditing.AuditSettings
        Of each audit of the grid; by default 20,000 samples and paths at most.
    seed : int
        Of the problems and of the samples: the outcome is always the same.

    Returns
    -------
    tuple of AuditReport
        Of each problem, the control's first, which failed as it should.

    Raises
    ------
    AssertionError
        If the rule is not lossless, fails, or its drafts differ, with the problem and the report;
        if the spoiled rule was not found; or if a sample could not have found `least_error`.
    InvalidInputError
        If an argument has the wrong type or range.

    Notes
    -----
    The spoiled rule writes, now and then, the token that the target likes least: in total
    variation `least_error`.  Some ten audits; a second each where a law is exact.

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
    of_rounds = {"sampler": sampler, "drafter": drafter, "batch": batch}
    sizes = _checked(rule, drafts, vocab_sizes, dtypes, least_error, of_rounds)
    settings = settings.filled(OF_ROUNDS)
    judged = partial(_judged, drafts=drafts, seed=seed, of_rounds=of_rounds, settings=settings)
    grid = list(_grid(sizes, dtypes))
    control = judged(_spoiled(rule, least_error, drafts, batch), grid[0])
    # a rule that is wrong by itself shall be told so, not that the control failed
    reports = [_passing(judged(rule, cell), cell, least_error) for cell in grid]
    if control.passed:
        raise AssertionError(
            f"the control was not found: the rule, spoiled by a total variation of {least_error}, "
            f"passed; does it draw with rng alone?\n{control}"
        )
    return control, *reports


def _checked(
    rule: object,
    drafts: object,
    vocab_sizes: Sequence[int],
    dtypes: Sequence[str],
    least_error: float,
    of_rounds: dict[str, Any],
) -> list[int]:
    """The numbers of tokens, where all arguments are in their ranges."""
    rounds = isinstance(drafts, DraftedPaths | DraftedTree)
    sizes = [whole_number(size, "a number of tokens", 2) for size in vocab_sizes]
    if not sizes or not dtypes or not callable(rule) or not (rounds or callable(drafts)):
        raise InvalidInputError(
            "pass a callable rule, what it verifies (DraftedPaths, DraftedTree, or a callable from "
            "q to a draft scheme), and at least one number of tokens and one dtype"
        )
    given = [name for name, value in of_rounds.items() if value is not None]
    if not rounds and given:
        raise InvalidInputError(
            f"{' and '.join(given)}: for rounds alone; pass DraftedPaths or DraftedTree"
        )
    check_number("least_error", least_error, lambda x: 0.0 < x < 0.5, "be between 0 and 0.5")
    return sizes


def _judged(
    rule: Callable[..., Any],
    cell: Cell,
    drafts: Drafting,
    seed: int,
    of_rounds: dict[str, Any],
    settings: AuditSettings,
) -> AuditReport:
    """The audit of a rule on one problem of the grid."""
    size, zeros, dtype = cell
    converted, rng = _converted(rule, dtype), np.random.default_rng(seed)
    if isinstance(drafts, DraftedPaths | DraftedTree):
        target, draft = _models(size, drafts.depth, drafts.most_siblings, zeros, seed)
        return audit_rounds(
            converted, target, draft, drafts, settings=settings, rng=rng, **of_rounds
        )
    (p, *_), (q,) = _models(size, 1, 1, zeros, seed)
    return audit(converted, p, drafts(q), settings=settings, rng=rng)


def _passing(report: AuditReport, cell: Cell, least_error: float) -> AuditReport:
    """The report, where it found nothing, and would have found an error of this size."""
    said = f"{cell[0]} tokens, zeros: {cell[1]}, {cell[2]}"
    if not report.passed:
        raise AssertionError(f"{said}\n{report}")
    # where the target knows one text, any other is proof
    tested = report.test is not None and np.count_nonzero(report.target) > 1
    found = report.test.detectable if report.test and tested else 0.0
    if SURER * found > least_error:
        raise AssertionError(
            f"{said}: {report.size:,} samples find a total variation of {found:.3f}, not "
            f"{least_error / SURER:.3f}: pass more samples, settings=AuditSettings(samples=...), "
            f"or a larger least_error\n{report}"
        )
    return report


def _grid(sizes: Sequence[int], dtypes: Sequence[str]) -> Iterator[Cell]:
    middle = sorted(sizes)[len(sizes) // 2]
    yield from ((size, ZEROS[0], dtypes[0]) for size in sizes)
    yield from ((middle, zeros, dtypes[0]) for zeros in ZEROS[1:])
    yield from ((middle, ZEROS[0], dtype) for dtype in dtypes[1:])


def _models(size: int, depth: int, siblings: int, zeros: str, seed: int) -> tuple[Tables, Tables]:
    """Tables of target and draft; the draft keeps as many tokens as siblings need."""
    rng = np.random.default_rng((seed, size))
    wanted, drafted = [*range(size)], [*range(size)]
    if zeros in ("in the draft", "apart"):
        drafted = drafted[: max(siblings, size - 1)]
    if zeros == "in the target":
        wanted = wanted[1:]
    elif zeros == "apart":
        wanted = wanted[len(drafted) :] or wanted[-1:]
    target = [_laws(rng, size, t, wanted) for t in range(depth + 1)]
    draft = [_laws(rng, size, t, drafted) for t in range(depth)]
    return target, target[:depth] if zeros == ZEROS[-1] else draft


def _laws(rng: np.random.Generator, size: int, length: int, kept: list[int]) -> FloatArray:
    """A law over the tokens that are kept, all of them likely, after each prefix of a length."""
    whole = np.zeros((size**length, size))
    rest = GRAIN - len(kept)
    shares = rng.dirichlet(np.ones(len(kept)), size**length)
    whole[:, kept] = 1 + np.array([rng.multinomial(rest, share) for share in shares])
    return (whole / GRAIN).reshape((size,) * (length + 1))


def _converted(rule: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """The rule, handed p and q in a dtype."""

    def converted(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        return rule(draft_tokens, p.astype(dtype), q.astype(dtype), rng)

    return update_wrapper(converted, rule)


def _spoiled(
    rule: Callable[..., Any], error: float, drafts: Drafting, batch: int | None
) -> Callable[..., Any]:
    """The rule, but now and then the text begins with the token that the target likes least."""
    rounds = isinstance(drafts, DraftedPaths | DraftedTree)

    def spoiled(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        laws = np.asarray(p, dtype=np.float64)
        firsts = laws.reshape(1 if batch is None else len(laws), -1, laws.shape[-1])[:, 0]
        tokens, shares = firsts.argmin(axis=1), error / (1.0 - firsts.min(axis=1))
        if batch is None:
            token = int(tokens[0])
            if rng.random() < shares[0]:
                return [token] if rounds else token
            return rule(draft_tokens, p, q, rng)
        answer = np.asarray(rule(draft_tokens, p, q, rng)).copy()
        hit = rng.random(len(answer)) < shares
        answer[hit] = PADDING
        answer[hit, 0] = tokens[hit]
        return answer

    return update_wrapper(spoiled, rule)
