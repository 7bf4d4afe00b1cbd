"""Speculative cascades: distributions T(q, p) to aim at, between the draft's and the target's.

A transform takes the next-token distributions q of the draft and p of the target and gives the one
that a verification algorithm then takes as its target, so all of them decode from T(q, p) exactly.
Most transforms defer: a rule delta(q, p) says where to follow p, and elsewhere q is followed.  What
runs without speculation, a call at a time, is in `otlp_lab.cascade_baselines`.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding, Tables 1 and 3, sections
4.3 and 4.4, Appendices C and D.  Larger thresholds alpha follow the draft more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from otlp.checks import number
from otlp.distribution import FloatArray, entropy, total_variation
from otlp.errors import InvalidInputError
from otlp.plan import residual_distribution


def greedy_distribution(q: FloatArray) -> FloatArray:
    """A point mass on the most likely token, shape (V,); ties go to the lowest id."""
    point = np.zeros(q.shape)
    point[int(np.argmax(q))] = 1.0
    return point


class Rule(Protocol):
    """Whether to defer to the target at a prefix.

    Attributes
    ----------
    needs_target : bool
        Whether the rule looks at p: run sequentially it then is an oracle's.
    """

    needs_target: ClassVar[bool] = True

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """delta(q, p): True follows p, False follows q."""

    def greedy(self) -> Rule:
        """The rule's limit for greedy decoding, still asked about q and p themselves."""
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
        """`Diff`: where the most likely tokens differ the distance of the point masses is 1.

        Where they agree it does not matter which model is followed (Lemma 8).
        """
        return Diff(self.alpha)


class OptLog(_Threshold, Rule):
    """Defer where entropy(p) < entropy(q) - alpha TV(p, q): optimal for the log loss (Eq. 26)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return entropy(p) < entropy(q) - self.alpha * total_variation(q, p)

    def greedy(self) -> DiffLog:
        """`DiffLog`, by the argument of Lemma 8."""
        return DiffLog(self.alpha)


class BiLD(_Threshold, Rule):
    """Defer where the discrepancy -sum q log p exceeds alpha (BiLD*, Table 1, Appendix E)."""

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        drafted = q > 0.0
        with np.errstate(divide="ignore"):
            return bool(-(q[drafted] @ np.log(p[drafted])) > self.alpha)

    def greedy(self) -> _GreedyBiLD:
        """The discrepancy -log p at the draft's most likely token."""
        return _GreedyBiLD(self.alpha)


class _GreedyBiLD(BiLD):
    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        return super().defers(greedy_distribution(q), p)


@dataclass(frozen=True)
class BigLittle(Rule):
    """BiLD as published: defer where the draft is unsure, or where another rule does.

    Drafting goes on until max q < 1 - fallback (the fallback phase), and what was drafted is cut
    where `rollback` defers (Appendix E.5).  What draws windows of bounded length:
    `otlp_lab.cascade_baselines.big_little_decoding`.

    Parameters
    ----------
    rollback : Rule
        `BiLD`, or its limit `BiLD.greedy` for greedy decoding.
    fallback : float
        In [0, 1]; larger ones draft longer.

    Raises
    ------
    InvalidInputError
        If `rollback` is no rule that defers by prefix, or `fallback` not in [0, 1].
    """

    rollback: Rule
    fallback: float

    def __post_init__(self) -> None:
        check_rule(self.rollback, "prefix")
        number(self.fallback, "the fallback threshold", 0.0, 1.0)

    def unsure(self, q: FloatArray) -> bool:
        """Whether drafting ends here."""
        return bool(q.max() < 1.0 - self.fallback)

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """See `Rule.defers`."""
        return self.unsure(q) or self.rollback.defers(q, p)

    def greedy(self) -> BigLittle:
        """The same with the limit of the rollback's rule."""
        return BigLittle(self.rollback.greedy(), self.fallback)


@dataclass(frozen=True)
class Cascade:
    """T = p where the rule defers, q elsewhere (Eq. 6, Algorithm 5)."""

    rule: Rule

    def __post_init__(self) -> None:
        check_rule(self.rule, "prefix")

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """Whether p is followed."""
        return self.rule.defers(q, p)

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution to aim at."""
        return p if self.defers(q, p) else q


class GreedyCascade(Cascade):
    """The limit of a cascade at temperature 0 (Appendix C.3).

    T is a point mass on the most likely token of the model that the rule follows.  The rule sees
    the distributions at the models' own temperatures, so give the models a positive one and draft
    the likeliest tokens for certain, ``mixed_tree([(1, 0)] * L)``.
    """

    def defers(self, q: FloatArray, p: FloatArray) -> bool:
        """Whether p is followed, by the rule's limit."""
        return self.rule.greedy().defers(q, p)

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution to aim at."""
        return greedy_distribution(super().__call__(q, p))


@dataclass(frozen=True)
class Lossy:
    """Lossy speculative decoding: T = max(min(q, p / (1 - alpha)), p / beta) (Lemma 2).

    Parameters
    ----------
    alpha : float
        Leniency in [0, 1); 0 gives p.
    beta : float or None
        None takes the one value for which T sums to one (Tran-Thien 2023), at least 1.  A number
        is the heuristic that replaces rejected tokens by (p / beta - q)^+ whatever its sum; 1 is
        common.  It is at most 1: beyond, that may be zero at every token.

    Raises
    ------
    InvalidInputError
        If alpha is not in [0, 1) or beta not in [1 - alpha, 1].
    """

    alpha: float
    beta: float | None = None

    def __post_init__(self) -> None:
        if number(self.alpha, "alpha", 0.0, 1.0) == 1.0:
            raise InvalidInputError("alpha is 1: it must be in [0, 1)")
        if self.beta is not None:
            what = f"beta, with 1 - alpha = {1.0 - self.alpha:g},"
            if number(self.beta, what, 1.0 - self.alpha) > 1.0:
                raise InvalidInputError(
                    f"beta is {self.beta!r}: it must be at most 1, since beyond that nothing may "
                    "be left to replace a rejected token by; None takes the beta for which the "
                    "distribution sums to one"
                )

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution to aim at; O(V log V)."""
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
    """Solve sum max(kept, c p) = 1 for c; the sum is piecewise linear and rises with c."""
    tokens = np.flatnonzero(p)
    kinks = kept[tokens] / p[tokens]
    order = np.argsort(kinks)
    raised = np.cumsum(p[tokens][order])
    left = np.append(np.cumsum(kept[tokens][order][::-1])[::-1][1:], 0.0)
    # compared as products: the mass below the level may be subnormal
    fits = np.flatnonzero(1.0 - left <= np.append(kinks[order][1:], np.inf) * raised)
    return float((1.0 - left[fits[0]]) / raised[fits[0]])


class TokenRule(Protocol):
    """Whether to defer to the target at a prefix and a token."""

    def defers(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """r(v) in {0, 1} for each token, shape (V,)."""


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
    """T(v) = q(v) (1 - r(v)) + p(v) sum_v' r(v') q(v') (Eq. 11, Algorithm 6)."""

    rule: TokenRule

    def __post_init__(self) -> None:
        check_rule(self.rule, "token")

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution to aim at."""
        deferred = self.rule.defers(q, p)
        return q * (1.0 - deferred) + p * float(deferred @ q)


class GreedyTokenCascade(TokenCascade):
    """The limit of a token-specific cascade at temperature 0; see `GreedyCascade`.

    The draft's most likely token is kept unless the rule defers there.  With `TokenV3` it is kept
    where p >= (1 - alpha) max p, which is lossy decoding at temperature 0.
    """

    def __call__(self, q: FloatArray, p: FloatArray) -> FloatArray:
        """Return the distribution to aim at."""
        drafted = greedy_distribution(q)
        return greedy_distribution(p) if self.rule.defers(q, p) @ drafted > 0.0 else drafted


def check_rule(rule: object, by: str) -> None:
    """Refuse what is no rule that defers by prefix, or by token.

    Raises
    ------
    InvalidInputError
        Naming it, and what it must be.
    """
    # only a rule that decides by prefix has a limit for greedy decoding
    if not callable(getattr(rule, "defers", None)) or hasattr(rule, "greedy") != (by == "prefix"):
        raise InvalidInputError(f"rule is {rule!r:.60}: it must be a rule that defers by {by}")


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
"""Deferral rules by name; the ``token-`` ones go into `TokenCascade`, the others into `Cascade`."""
