"""Losses and acceptances of published rules that are deliberately not lossless.

For any rule and any drafts the acceptance is at most alpha* + TV(output, target).  Proof: given the
output Y, a maximal coupling draws a token Y' of the target with P(Y != Y') = TV.  Y' is the output
of a lossless rule, so Y' is a draft with probability at most alpha*, and Y with at most
alpha* + TV.  The share of TV that a rule turns into acceptance is thus at most one.
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
"""Maps p and q to the output distribution and the acceptance, for one draft."""


@dataclass(frozen=True)
class Loss:
    """Loss and acceptance of a rule on a row, for one draft.

    Attributes
    ----------
    total_variation : float
        Distance between output distribution and target.
    kl : float
        KL divergence of the output distribution from the target, in nats; may be infinite.
    acceptance : float
        Probability that the output is the draft.
    bound : float
        alpha* + total variation, the upper bound on the acceptance at this loss.
    lossless : float
        alpha* = sum min(p, q).
    """

    total_variation: float
    kl: float
    acceptance: float
    bound: float
    lossless: float

    @property
    def share(self) -> float:
        """Gain in acceptance over alpha* per total variation: at most 1, may be negative."""
        lost = self.total_variation
        return (self.acceptance - self.lossless) / lost if lost > 0.0 else math.nan


def measure_loss(rule: LossyRule, p: FloatArray, q: FloatArray) -> Loss:
    """Measure a rule on a target p and a draft q, each of shape (V,)."""
    output, accepted = rule(p, q)
    best, distance = float(np.minimum(p, q).sum()), total_variation(output, p)
    return Loss(distance, kl_divergence(output, p), accepted, best + distance, best)


def kl_divergence(output: FloatArray, p: FloatArray) -> float:
    """Compute KL(output || target) in nats; infinite if the support exceeds the target's support.

    Parameters
    ----------
    output, p : ndarray, shape (V,)
    """
    return max(0.0, float(scipy.special.rel_entr(output, p).sum()))


def speculative(transform: Callable[[FloatArray, FloatArray], FloatArray]) -> LossyRule:
    """Return speculative sampling from ``transform(q, p)`` instead of the target."""

    def rule(p: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
        law = transform(q, p)
        return law, float(np.minimum(law, q).sum())

    return rule


def ensemble(weight: float) -> LossyRule:
    """Return verification against w p + (1 - w) q.

    Source: ``assistant_ensemble_weight`` of transformers (#45979).
    """
    return speculative(lambda q, p: weight * p + (1.0 - weight) * q)


def typical(most: float, scale: float) -> LossyRule:
    """Return typical acceptance: accept where p > min(most, scale e^-H(p)), else output argmax p.

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
    """Return a rule that accepts every draft if the target's entropy exceeds `most` nats."""
    return speculative(lambda q, p: q if entropy(p) > most else p)


def cactus(delta: float) -> LossyRule:
    """Return Cactus: accept a draft x with probability h(x) / q(x), else sample from (h - q)+.

    h(x) = p(x) + sqrt(2 delta p(x) (1 - p(x))), and h is proportional to p at other tokens.  O(V)
    for each token that may be rejected.  Source: Hao and Mou 2026, as released (3b01b81).
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
    "token-v3": speculative(TokenCascade(TokenV3(0.9))),
    "cactus": cactus(0.05),
    "lossy-beta-1": speculative(Lossy(0.3, beta=1.0)),
    "lossy": speculative(Lossy(0.3)),
}
"""Rules by name, with Medusa's thresholds, 2 nats, target weight .7, alpha .9 and .3, delta .05."""
