"""Rules that are not lossless, on purpose, measured: what each loses, and what it has for it.

For any rule and any drafts the acceptance is at most alpha* + TV(output, target): a maximal
coupling puts a token Y' of the target beside the output Y, drawn from Y alone, with
P(Y != Y') = TV.  Then Y' is what a lossless rule gives, so it is drafted with alpha* at most, and Y
with alpha* + TV.  The share of TV that a rule turned into acceptance is at most one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy

from otlp.decode.cascades import Lossy, TokenCascade, TokenV3
from otlp.distribution import FloatArray, entropy, total_variation

LossyRule: TypeAlias = Callable[[FloatArray, FloatArray], tuple[FloatArray, float]]
"""From p and q to the law of its output and its acceptance, with one draft."""


@dataclass(frozen=True)
class Loss:
    """What a rule loses on a row, and what it accepts for it, with one draft.

    Attributes
    ----------
    total_variation, kl : float
        Of its output from the target; kl in nats, of the output against the target, may be
        infinite.
    acceptance : float
        Probability that the output is the draft.
    bound : float
        alpha* + total variation: no rule that loses as much accepts more.
    lossless : float
        alpha*, sum min(p, q).
    """

    total_variation: float
    kl: float
    acceptance: float
    bound: float
    lossless: float

    @property
    def share(self) -> float:
        """Of the loss, what became acceptance: at most 1, below 0 for less than alpha*."""
        lost = self.total_variation
        return (self.acceptance - self.lossless) / lost if lost > 0.0 else math.nan


def measure_loss(rule: LossyRule, p: FloatArray, q: FloatArray) -> Loss:
    """Measure a rule on a target p and a draft q, each of shape (V,)."""
    output, accepted = rule(p, q)
    best, apart = float(np.minimum(p, q).sum()), total_variation(output, p)
    return Loss(apart, kl_divergence(output, p), accepted, best + apart, best)


def kl_divergence(output: FloatArray, p: FloatArray) -> float:
    """Of an output against a target, in nats; infinite where it gives what the target never does.

    Parameters
    ----------
    output, p : ndarray, shape (V,)
    """
    return max(0.0, float(scipy.special.rel_entr(output, p).sum()))


def aimed(transform: Callable[[FloatArray, FloatArray], FloatArray]) -> LossyRule:
    """Speculative sampling from a law between draft and target, given q and p."""

    def rule(p: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
        law = transform(q, p)
        return law, float(np.minimum(law, q).sum())

    return rule


def ensemble(weight: float) -> LossyRule:
    """Verified against w p + (1 - w) q, as transformers' assistant_ensemble_weight (#45979)."""
    return aimed(lambda q, p: weight * p + (1.0 - weight) * q)


def typical(most: float, scale: float) -> LossyRule:
    """Kept where p exceeds min(most, scale e^-H(p)); else the target's likeliest token.

    Source: Cai et al. 2024 (Medusa).
    """

    def rule(p: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
        kept = p > min(most, scale * math.exp(-entropy(p)))
        output, likeliest = np.where(kept, q, 0.0), int(np.argmax(p))
        accepted = float(output.sum()) + (0.0 if kept[likeliest] else float(q[likeliest]))
        output[likeliest] += 1.0 - float(output.sum())
        return output, accepted

    return rule


def by_entropy(most: float) -> LossyRule:
    """Whatever is drafted is kept where the target's entropy exceeds so many nats."""
    return aimed(lambda q, p: q if entropy(p) > most else p)


def cactus(delta: float) -> LossyRule:
    """A draft x accepted with h / q, h = p + sqrt(2 delta p (1 - p)) at x; then from (h - q)+.

    Elsewhere h is p scaled to the rest.  Source: Hao and Mou 2026, as released (3b01b81).  O(V) for
    each token that may be rejected.
    """

    def rule(p: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
        raised = np.minimum(1.0, p + np.sqrt(2.0 * delta * p * (1.0 - p)))
        output = np.minimum(q, raised)
        accepted = float(output.sum())
        for x in np.flatnonzero(q > raised):
            left = np.maximum(p * ((1.0 - raised[x]) / (1.0 - p[x])) - q, 0.0)
            left[x] = 0.0
            output += (q[x] - raised[x]) * left / left.sum()
        return output, accepted

    return rule


LOSSY_RULES: Mapping[str, LossyRule] = {
    "typical": typical(0.09, 0.3),
    "entropy": by_entropy(2.0),
    "ensemble": ensemble(0.7),
    "token-v3": aimed(TokenCascade(TokenV3(0.9))),
    "cactus": cactus(0.05),
    "lossy-beta-1": aimed(Lossy(0.3, beta=1.0)),
    "lossy": aimed(Lossy(0.3)),
}
"""By name: Medusa's thresholds, 2 nats, a target's weight of .7, alpha = .9 and .3, delta = .05."""
