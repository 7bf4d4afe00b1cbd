"""Settings of an audit: sample size, false-alarm rate and limits; and what one run adds to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otlp.auditing.subject import Progress
from otlp.checks import check_number, is_a, whole_number
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class AuditSettings:
    """How an audit is made.

    Parameters
    ----------
    samples : int, optional
        Sample size (tokens, or rounds), where the distribution cannot be computed; at least 1,000.
        By default 100,000 tokens, or 20,000 rounds.
    false_alarm_rate : float
        Probability that a correct rule with correct drafts is rejected by the tests together.
    confidence : float
        Of the interval for the total variation, if sampled.
    tolerance : float
        Largest exact total variation that is called lossless: above the rounding of a rule in
        float32, far below what sampling could see.
    max_paths : int, optional
        Sample instead if the enumeration needs more paths; 0 samples always, a plan's
        conditionals too.  By default 100,000, or 20,000 for rounds.

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

    samples: int | None = None
    false_alarm_rate: float = 1e-6
    confidence: float = 0.99
    tolerance: float = 1e-6
    max_paths: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("samples", 1000), ("max_paths", 0)):
            value = getattr(self, name)
            if value is not None and whole_number(value, name, least) >= 2**63:
                raise InvalidInputError(f"{name} is 2^63 or more: it must be below")
        for name in ("false_alarm_rate", "confidence"):
            share = getattr(self, name)
            check_number(name, share, lambda x: 0.0 < x < 1.0, "be a number between 0 and 1")
        check_number("tolerance", self.tolerance, lambda x: 0.0 <= x < 2**63, "be a number >= 0")
        object.__setattr__(self, "tolerance", float(self.tolerance))

    def filled(self, usual: int) -> AuditSettings:
        """Return the settings with a usual number of samples and paths where they have none."""
        samples = usual if self.samples is None else self.samples
        max_paths = usual if self.max_paths is None else self.max_paths
        return replace(self, samples=samples, max_paths=max_paths)


@dataclass(frozen=True)
class AuditRun:
    """The settings of one audit, its random numbers, and the function that is told its progress.

    Attributes
    ----------
    samples, false_alarm_rate, confidence, tolerance, max_paths
        See `AuditSettings`.
    rng : numpy.random.Generator
    progress : callable
        Called with a label and the share done.
    """

    samples: int
    false_alarm_rate: float
    confidence: float
    tolerance: float
    max_paths: int
    rng: np.random.Generator
    progress: Progress


def run_with(
    settings: AuditSettings, usual: int, rng: np.random.Generator | None, progress: Progress
) -> AuditRun:
    """Join the arguments of an audit, and refuse those of a wrong type; see `AuditRun`."""
    is_a(settings, AuditSettings, "settings")
    rng = np.random.default_rng(0) if rng is None else rng
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(f"rng is a {type(rng).__name__}: pass a numpy.random.Generator")
    if not callable(progress):
        raise InvalidInputError(f"progress is a {type(progress).__name__}: pass a callable")
    return AuditRun(**vars(settings.filled(usual)), rng=rng, progress=progress)
