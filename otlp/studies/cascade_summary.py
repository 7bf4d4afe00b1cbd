"""Table 2 of speculative cascades: speed at the target's quality, quality at its speed.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding, Table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otlp.checks import number
from otlp.studies.cascade_curve import Point

SAME = 1e-9
"""Tolerance for the rounding of a mean."""


@dataclass(frozen=True)
class Summary:
    """Both metrics of the paper's Table 2 for one cascade and one measure of quality.

    Attributes
    ----------
    method, quality : str
        Quality is ``accuracy`` or ``log_likelihood``.
    speed_up, speed_up_alpha : float or None
        Largest ratio of the target's time to the cascade's time over the thresholds at which the
        cascade is no worse than the target, and its threshold; None if there is no such threshold.
    best, best_alpha : float or None
        Best quality over the thresholds at which the cascade is no slower than the target, and its
        threshold; None if there is no such threshold.
    """

    method: str
    quality: str
    speed_up: float | None
    speed_up_alpha: float | None
    best: float | None
    best_alpha: float | None


def summaries(points: Sequence[Point], draft_cost: float) -> list[Summary]:
    """Compute Table 2 from means: speed at the target's quality, quality at the target's speed.

    Oracles are left out because their cost is not achievable.

    Parameters
    ----------
    points : sequence of Point
    draft_cost : float
        Cost of a draft call in target calls, at least 0.

    Raises
    ------
    InvalidInputError
        If the cost is negative.
    """
    number(draft_cost, "draft_cost", 0.0)
    made: list[Summary] = []
    no = (None, None)
    methods = dict.fromkeys(p.method for p in points if not p.method.startswith("oracle-"))
    for method, quality in ((m, q) for m in methods for q in ("accuracy", "log_likelihood")):
        own = [p for p in points if p.method == method and getattr(p, quality) is not None]
        times = [(point.latency(draft_cost), point) for point in own]
        even = [(1 / t, p.alpha) for t, p in times if getattr(p, f"{quality}_gain").mean >= -SAME]
        fast = [(getattr(p, quality).mean, p.alpha) for t, p in times if t <= 1.0 + SAME]
        made.append(Summary(method, quality, *max(even, default=no), *max(fast, default=no)))
    return made
