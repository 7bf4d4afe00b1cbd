"""How an audit is made: sample size, false-alarm rate, limits; and the random numbers of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.auditing.subject import Progress
from otlp.checks import check_number, is_a, whole_number
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class AuditSettings:
    """How an audit is made.

    Parameters
    ----------
    samples : int
        Sample size (tokens, or rounds), where the distribution cannot be computed; at least 1,000.
    false_alarm_rate : float
        Probability that a correct rule with correct drafts is rejected by the tests together.
    confidence : float
        Of the interval for the total variation, if sampled.
    tolerance : float
        Largest exact total variation that is called lossless: above the rounding of a rule in
        float32, far below what sampling could see.
    max_paths : int
        Sample instead if the enumeration needs more paths; 0 samples always, a plan's
        conditionals too.

    Raises
    ------
    InvalidInputError
        If one of them has the wrong type or is out of its range.

    Examples
    --------
    >>> import otlp
    >>> def first_always(draft_tokens, p, q, rng):
    ...     return int(draft_tokens[0])
    >>> sampled = otlp.auditing.AuditSettings(max_paths=0, samples=2000, false_alarm_rate=1e-3)
    >>> drafts = otlp.IID([0.5, 0.5], n=2)
    >>> otlp.audit(first_always, [0.5, 0.5], drafts, settings=sampled).verdict.name
    'NOT_REJECTED'
    """

    samples: int = 100_000
    false_alarm_rate: float = 1e-6
    confidence: float = 0.99
    tolerance: float = 1e-6
    max_paths: int = 100_000

    def __post_init__(self) -> None:
        for name, least in (("samples", 1000), ("max_paths", 0)):
            if whole_number(getattr(self, name), name, least) >= 2**63:
                raise InvalidInputError(f"{name} is 2^63 or more: it must be below")
        for name in ("false_alarm_rate", "confidence"):
            share = getattr(self, name)
            check_number(name, share, lambda x: 0.0 < x < 1.0, "be a number between 0 and 1")
        check_number("tolerance", self.tolerance, lambda x: 0.0 <= x < 2**63, "be a number >= 0")
        object.__setattr__(self, "tolerance", float(self.tolerance))


@dataclass(frozen=True, kw_only=True)
class AuditRun(AuditSettings):
    """The settings of one audit, its random numbers, and the function that is told its progress.

    Parameters
    ----------
    rng : numpy.random.Generator
    progress : callable
        Called with a label and the share done.

    Raises
    ------
    InvalidInputError
        If one of them has the wrong type.
    """

    rng: np.random.Generator
    progress: Progress

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rng, np.random.Generator):
            raise InvalidInputError(
                f"rng is a {type(self.rng).__name__}: pass a numpy.random.Generator"
            )
        if not callable(self.progress):
            raise InvalidInputError(
                f"progress is a {type(self.progress).__name__}: pass a callable"
            )


def run_with(
    settings: AuditSettings, rng: np.random.Generator | None, progress: Progress
) -> AuditRun:
    """Join the arguments of an audit; without a generator ``numpy.random.default_rng(0)``."""
    is_a(settings, AuditSettings, "settings")
    rng = np.random.default_rng(0) if rng is None else rng
    return AuditRun(**vars(settings), rng=rng, progress=progress)
