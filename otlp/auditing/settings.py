"""Settings of an audit (sample size, false-alarm rate, limits) and the arguments of one run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otlp.auditing.audited_rule import Progress
from otlp.checks import check_number, is_a, whole_number
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class AuditSettings:
    """Settings of an audit.

    Parameters
    ----------
    samples : int, optional
        Number of samples (tokens or rounds) if the distribution cannot be computed; at least
        1,000.  Default: 100,000 tokens, or 20,000 rounds.
    false_alarm_rate : float
        Probability that the tests together reject a correct rule with correct drafts.
    confidence : float
        Confidence of the interval for the total variation, if sampled.
    tolerance : float
        Maximum exact total variation of a lossless rule.  The default is above the rounding of a
        rule in float32, and far below the resolution of sampling.
    max_paths : int, optional
        Maximum number of paths of an enumeration; a rule with more paths is sampled.  With 0, every
        rule is sampled, including plans.  Default: 100,000, or 20,000 for rounds.

    Raises
    ------
    InvalidInputError
        If a setting has the wrong type or is out of range.

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
                raise InvalidInputError(f"{name} is 2^63 or more: it must be less than 2^63")
        for name in ("false_alarm_rate", "confidence"):
            share = getattr(self, name)
            check_number(name, share, lambda x: 0.0 < x < 1.0, "be a number between 0 and 1")
        check_number("tolerance", self.tolerance, lambda x: 0.0 <= x < 2**63, "be a number >= 0")
        object.__setattr__(self, "tolerance", float(self.tolerance))

    def filled(self, default: int) -> AuditSettings:
        """Return the settings with a default for `samples` and `max_paths` if these are None."""
        samples = default if self.samples is None else self.samples
        max_paths = default if self.max_paths is None else self.max_paths
        return replace(self, samples=samples, max_paths=max_paths)


@dataclass(frozen=True, kw_only=True)
class AuditRun(AuditSettings):
    """The settings of one audit, with its random generator and progress function.

    Attributes
    ----------
    samples, false_alarm_rate, confidence, tolerance, max_paths
        See `AuditSettings`.
    rng : numpy.random.Generator
    progress : callable
        Called with a label and the completed fraction.
    """

    samples: int
    max_paths: int
    rng: np.random.Generator
    progress: Progress


def run_with(
    settings: AuditSettings, default: int, rng: np.random.Generator | None, progress: Progress
) -> AuditRun:
    """Return the AuditRun of an audit; raise InvalidInputError if an argument has a wrong type."""
    is_a(settings, AuditSettings, "settings")
    rng = np.random.default_rng(0) if rng is None else rng
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(f"rng is a {type(rng).__name__}: pass a numpy.random.Generator")
    if not callable(progress):
        raise InvalidInputError(f"progress is a {type(progress).__name__}: pass a callable")
    return AuditRun(**vars(settings.filled(default)), rng=rng, progress=progress)
