"""Speculative cascades: transforms T(q, p) of the draft's and the target's distributions.

A transform maps the next-token distributions q of the draft and p of the target to the distribution
that a verification algorithm uses as its target, so every algorithm decodes from T(q, p) exactly.
Most transforms use a deferral rule delta(q, p): T follows p where the rule defers and q elsewhere.
`otlp_lab.cascade_baselines` has the baselines without speculation, one token per call.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding, Tables 1 and 3, sections
4.3 and 4.4, Appendices C and D.  Larger thresholds alpha follow the draft more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from otlp.checks import number
from otlp.distribution import FloatArray, entropy, logarithms, total_variation
from otlp.errors import InvalidInputError
from otlp.plan import residual_distribution


def greedy_distribution(q: FloatArray) -> FloatArray:
    """Return a point mass on the most likely token, shape (V,); ties go to the lowest id."""
    point = np.zeros(q.shape)
    point[int(np.argmax(q))] = 1.0
    return point


class Rule(Protocol):
    """Deferral rule that decides per prefix whether to follow the target.

    Attributes
    ----------
    needs_target : bool
        Whether the rule uses p; in a sequential run it is then an oracle.
    """

    needs_target: ClassVar[bool] = True

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """Return delta(q, p): True to follow p, False to follow q."""

    def greedy(self) -> Rule:
        """Return the rule's limit for greedy decoding; it still receives q and p themselves."""
        return self


@dataclass(frozen=True)
class _Threshold:
    alpha: float

    def __post_init__(self) -> None:
        number(self.alpha, "the threshold alpha", 0.0)


class Chow(_Threshold, Rule):
    """Defer where max q < 1 - alpha (Eq. 2)."""

    needs_target = False

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return bool(q.max() < 1.0 - self.alpha)


class ChowLog(_Threshold, Rule):
    """Defer where the entropy of q exceeds alpha (Eq. 24)."""

    needs_target = False

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return entropy(q) > self.alpha


class Diff(_Threshold, Rule):
    """Defer where max q < max p - alpha (Eq. 5)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return bool(q.max() < p.max() - self.alpha)


class DiffLog(_Threshold, Rule):
    """Defer where entropy(p) < entropy(q) - alpha (Eq. 25)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return entropy(p) < entropy(q) - self.alpha


class Opt(_Threshold, Rule):
    """Defer where max q < max p - alpha TV(p, q): optimal for the 0-1 loss (Eq. 10)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return bool(q.max() < p.max() - self.alpha * total_variation(q, p))

    def greedy(self) -> Diff:
        """Return `Diff`: if the most likely tokens differ, the TV of the point masses is 1.

        If the most likely tokens agree, both models give the same token (Lemma 8).
        """
        return Diff(self.alpha)


class OptLog(_Threshold, Rule):
    """Defer where entropy(p) < entropy(q) - alpha TV(p, q): optimal for the log loss (Eq. 26)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return entropy(p) < entropy(q) - self.alpha * total_variation(q, p)

    def greedy(self) -> DiffLog:
        """Return `DiffLog`, by the argument of Lemma 8."""
        return DiffLog(self.alpha)


class BiLD(_Threshold, Rule):
    """Defer where the discrepancy -sum q log p exceeds alpha (BiLD*, Table 1, Appendix E)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        drafted = q > 0.0
        return bool(-(q[drafted] @ logarithms(p[drafted])) > self.alpha)

    def greedy(self) -> _GreedyBiLD:
        """Return the rule with the discrepancy -log p at the draft's most likely token."""
        return _GreedyBiLD(self.alpha)


class _GreedyBiLD(BiLD):
    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        return super().defers(greedy_distribution(q), p)


@dataclass(frozen=True)
class BigLittle(Rule):
    """BiLD as published: defer where the draft is unsure or where `rollback` defers.

    Drafting continues until max q < 1 - fallback (the fallback phase), and the drafted tokens are
    cut where `rollback` defers (Appendix E.5).  For drafts of bounded length use
    `otlp_lab.cascade_baselines.big_little_decoding`.

    Parameters
    ----------
    rollback : Rule
        `BiLD`, or its limit `BiLD.greedy` for greedy decoding.
    fallback : float
        Threshold in [0, 1]; larger values draft longer.

    Raises
    ------
    InvalidInputError
        If `rollback` is not a rule that defers by prefix, or `fallback` is not in [0, 1].
    """

    rollback: Rule
    fallback: float

    def __post_init__(self) -> None:
        check_rule(self.rollback, "prefix")
        number(self.fallback, "the fallback threshold", 0.0, 1.0)

    def unsure(self, q: FloatArray) -> bool:
        """Return whether drafting ends here."""
        return bool(q.max() < 1.0 - self.fallback)

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return self.unsure(q) or self.rollback.defers(q, p)

    def greedy(self) -> BigLittle:
        """Return the same rule with the greedy limit of `rollback`."""
        return BigLittle(self.rollback.greedy(), self.fallback)


@dataclass(frozen=True)
class Cascade:
    """Cascade with T = p where the rule defers, q elsewhere (Eq. 6, Algorithm 5)."""

    rule: Rule

    def __post_init__(self) -> None:
        check_rule(self.rule, "prefix")

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """Return whether T = p."""
        return self.rule.defers(q, p)

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution T(q, p)."""
        return p if self.defers(q, p) else q


class GreedyCascade(Cascade):
    """Limit of a cascade at temperature 0 (Appendix C.3).

    T is a point mass on the most likely token of the model that the rule follows.  The rule sees
    the distributions at the models' own temperatures, so use a positive temperature and draft the
    most likely tokens deterministically, ``mixed_tree([(1, 0)] * L)``.
    """

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """Return whether the rule's greedy limit follows p."""
        return self.rule.greedy().defers(q, p)

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution T(q, p)."""
        return greedy_distribution(super().__call__(q, p))


@dataclass(frozen=True)
class Lossy:
    """Lossy speculative decoding: T = max(min(q, p / (1 - alpha)), p / beta) (Lemma 2).

    Parameters
    ----------
    alpha : float
        Leniency in [0, 1); T = p for 0.
    beta : float or None
        None uses the value for which T sums to one (Tran-Thien 2023); it is at least 1.  A number
        selects the heuristic that replaces rejected tokens from (p / beta - q)^+, normalised; 1 is
        common.  The number must be at most 1: above 1 the residual may be zero at every token.

    Raises
    ------
    InvalidInputError
        If alpha is not in [0, 1) or beta not in [1 - alpha, 1].
    """

    alpha: float
    beta: float | None = None

    def __post_init__(self) -> None:
        if number(self.alpha, "alpha", 0.0, 1.0) == 1.0:
            raise InvalidInputError("alpha must be in [0, 1), got 1")
        if self.beta is not None:
            what = f"beta, with 1 - alpha = {1.0 - self.alpha:g},"
            if number(self.beta, what, 1.0 - self.alpha) > 1.0:
                raise InvalidInputError(
                    f"beta must be at most 1, got {self.beta!r}: above 1 the residual for a "
                    "rejected token may be zero; None uses the beta for which the distribution "
                    "sums to one"
                )

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution T(q, p); O(V log V)."""
        kept = np.minimum(q, p / (1.0 - self.alpha))
        missing = float(np.maximum(q - kept, 0.0).sum())
        if missing <= 0.0:
            return q
        if self.beta is not None:
            return kept + missing * residual_distribution(p / self.beta, q)
        raised: FloatArray = np.maximum(kept, p * _level(kept, p))
        raised /= raised.sum()
        return raised


def _level(kept: FloatArray, p: FloatArray) -> float:
    """Solve sum max(kept, c p) = 1 for c; the sum is piecewise linear and increasing in c."""
    tokens = np.flatnonzero(p)
    kinks = kept[tokens] / p[tokens]
    order = np.argsort(kinks)
    raised = np.cumsum(p[tokens][order])
    left = np.append(np.cumsum(kept[tokens][order][::-1])[::-1][1:], 0.0)
    # Compare products instead of quotients: the mass below the level may be subnormal.
    fits = np.flatnonzero(1.0 - left <= np.append(kinks[order][1:], np.inf) * raised)
    return float((1.0 - left[fits[0]]) / raised[fits[0]])


class TokenRule(Protocol):
    """Deferral rule that decides per prefix and token whether to follow the target."""

    def defers(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return r(v) in {0, 1} for each token, shape (V,)."""


class TokenV1(_Threshold):
    """Defer at tokens with q < max p - alpha (Eq. 13)."""

    def defers(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """See `TokenRule.defers`."""
        return np.where(q < p.max() - self.alpha, 1.0, 0.0)


class TokenV2(_Threshold):
    """Defer at tokens with p < max p - alpha (Eq. 14)."""

    def defers(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """See `TokenRule.defers`."""
        return np.where(p < p.max() - self.alpha, 1.0, 0.0)


class TokenV3(_Threshold):
    """Defer at tokens with p < (1 - alpha) max p (Eq. 15)."""

    def defers(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """See `TokenRule.defers`."""
        return np.where(p < p.max() * (1.0 - self.alpha), 1.0, 0.0)


@dataclass(frozen=True)
class TokenCascade:
    """Cascade with T(v) = q(v) (1 - r(v)) + p(v) sum_v' r(v') q(v') (Eq. 11, Algorithm 6)."""

    rule: TokenRule

    def __post_init__(self) -> None:
        check_rule(self.rule, "token")

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution T(q, p)."""
        deferred = self.rule.defers(q, p)
        return q * (1.0 - deferred) + p * float(deferred @ q)


class GreedyTokenCascade(TokenCascade):
    """Limit of a token-specific cascade at temperature 0; see `GreedyCascade`.

    The draft's most likely token is kept unless the rule defers there.  `TokenV3` keeps it where
    p >= (1 - alpha) max p, which is lossy decoding at temperature 0.
    """

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution T(q, p)."""
        drafted = greedy_distribution(q)
        return greedy_distribution(p) if self.rule.defers(q, p) @ drafted > 0.0 else drafted


def check_rule(rule: object, by: str) -> None:
    """Raise InvalidInputError if `rule` is not a rule that defers by `by` (prefix or token).

    Raises
    ------
    InvalidInputError
        Names the value and the required kind of rule.
    """
    # Only a rule that decides by prefix has a limit for greedy decoding.
    if not callable(getattr(rule, "defers", None)) or hasattr(rule, "greedy") != (by == "prefix"):
        raise InvalidInputError(f"rule must be a rule that defers by {by}, got {rule!r:.60}")


RULES: Mapping[str, type[_Threshold]] = {
    "chow": Chow,
    "chow-log": ChowLog,
    "diff": Diff,
    "diff-log": DiffLog,
    "opt": Opt,
    "opt-log": OptLog,
    "bild": BiLD,
    "token-v1": TokenV1,
    "token-v2": TokenV2,
    "token-v3": TokenV3,
}
"""Deferral rules by name; pass ``token-`` rules to `TokenCascade`, other rules to `Cascade`."""
