"""Quality-cost curves of cascades over their thresholds.

Quality is measured for the cascade's distribution on held-out text: the mean log-likelihood of the
text's tokens given the preceding text, and their mean probability, which is the expected 0-1
accuracy of a sampled token.  Cost is the number of calls per token.  Speculative cascades draft L
tokens at positions of the same text.  Sequential cascades call the draft for each token and the
target where they defer; oracles do the same without the cost.  BiLD as published drafts windows of
at most L tokens.  A sequence-level cascade writes responses of L tokens.  All methods use the same
q, p and drafts, and the acceptance is averaged exactly given the drafts, so differences are paired;
the texts are the independent units of intervals.

If both models decode greedily (temperature 0), so do the cascades: their rules use the
distributions at temperature 1, tokens are the most likely tokens, and there is no log-likelihood.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding, Tables 1 and 2, sections
5 and 6, Appendices C.3 and E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.checks import number
from otlp.decode.cascades import (
    RULES,
    BigLittle,
    BiLD,
    Cascade,
    GreedyCascade,
    GreedyTokenCascade,
    Lossy,
    TokenCascade,
    TokenV3,
    greedy_distribution,
)
from otlp.decode.round import Transform, transformed
from otlp.distribution import FloatArray, Mask, total_variation
from otlp.errors import InvalidInputError
from otlp.studies.cascade_observed import Observed
from otlp.studies.estimate import Estimate, ratio

UNIT = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
NATS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
FALLBACKS = (0.1, 0.5, 0.9)
"""Fallback thresholds of BiLD as published: the paper's Figure 8 shows .1 and .9."""


ONE = Estimate(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Method:
    """A cascade: its transforms for sampling and greedy decoding, and its measurement.

    Attributes
    ----------
    sampled, greedy : callable
        Maps a threshold to the transform, or to the threshold itself for sequence-level cascades.
    run : callable
        Maps an `Observed` and the transform to the quality and cost fields of a `Point`.
    """

    sampled: Callable[[float], Any]
    greedy: Callable[[float], Any]
    run: Callable[[Observed, Any], dict[str, Any]]


def _by_rule(name: str, run: Callable[[Observed, Any], dict[str, Any]]) -> Method:
    kinds: tuple[Any, Any] = (Cascade, GreedyCascade)
    if name.startswith("token-"):
        kinds = (TokenCascade, GreedyTokenCascade)
    return Method(lambda a: kinds[0](RULES[name](a)), lambda a: kinds[1](RULES[name](a)), run)


def _published(fallback: float) -> Method:
    def rule(alpha: float) -> BigLittle:
        return BigLittle(BiLD(alpha), fallback)

    return Method(lambda a: Cascade(rule(a)), lambda a: GreedyCascade(rule(a)), _windows)


def thresholds(method: str) -> tuple[float, ...]:
    """Return thresholds that span the method's curve: probabilities, or nats for log rules."""
    if method == "sequence-chow":  # probabilities of whole responses are tiny
        return (*(1.0 - 10.0**-e for e in np.arange(0.0, 15.0, 1.5).tolist()), 1.0)
    return NATS if method.startswith("bild") or method.endswith("-log") else UNIT


@dataclass(frozen=True)
class Point:
    """One method at one threshold.

    Attributes
    ----------
    method : str
    alpha : float
        The threshold.
    log_likelihood : Estimate or None
        Mean of log T at the text's tokens, in nats; exp(-log_likelihood) is the perplexity.  None
        for greedy decoding.
    log_likelihood_gain : Estimate or None
        `log_likelihood` minus that of the target; negative values are the cost of leniency.
    accuracy : Estimate or None
        Mean of T at the text's tokens; None for responses, which have no distribution per token.
    accuracy_gain : Estimate or None
        `accuracy` minus that of the target.
    rejection : Estimate or None
        Mean total variation distance of q and T, the probability that a draft token is rejected;
        None for methods without rejection.
    calls, draft_calls : Estimate
        Calls of the target and of the draft per token.  The target calls of an oracle are its
        deferrals, as if computing p were free.
    deferral : Estimate or None
        Share of tokens (or of responses) chosen by the target; None for rules that decide per
        token of the vocabulary.
    """

    method: str
    alpha: float
    log_likelihood: Estimate | None
    log_likelihood_gain: Estimate | None
    accuracy: Estimate | None
    accuracy_gain: Estimate | None
    rejection: Estimate | None
    calls: Estimate
    draft_calls: Estimate
    deferral: Estimate | None

    def latency(self, draft_cost: float) -> float:
        """Return the time per token in target calls, for draft calls that cost `draft_cost`."""
        return self.calls.mean + draft_cost * self.draft_calls.mean

    def record(self) -> dict[str, object]:
        """Return all fields as JSON values; estimates are lists of mean, low and high."""
        return {k: v.record() if isinstance(v, Estimate) else v for k, v in vars(self).items()}


def curve(observed: Observed, method: str, alphas: Sequence[float] | None = None) -> list[Point]:
    """Compute quality and cost of a method at each threshold.

    Parameters
    ----------
    observed : Observed
    method : str
        One of `METHODS`.
    alphas : sequence of float, optional
        Thresholds, default ``thresholds(method)``.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or does not accept a threshold.
    """
    if method not in METHODS:
        raise InvalidInputError(f"unknown cascade {method!r}: choose one of {', '.join(METHODS)}")
    known = METHODS[method]
    make = known.greedy if observed.greedy else known.sampled
    return [
        Point(method, float(alpha), **known.run(observed, make(alpha)))
        for alpha in (thresholds(method) if alphas is None else alphas)
    ]


def _speculative(observed: Observed, transform: Any) -> dict[str, Any]:
    """Measure a speculative cascade: a call yields 1 + sum over l of P(at least l accepted)."""
    outputs = [transformed(transform, q, p) for q, p in observed.pairs]
    drawn = [_decoding_law(observed, q) for q in observed.draft_distributions]
    accepted = np.empty(observed.drafts.shape)
    for draft, place in np.ndindex(accepted.shape):
        q, p = observed.draft_path[draft, place], observed.target_path[draft, place]
        token = observed.drafts[draft, place]
        accepted[draft, place] = min(1.0, float(transform(q, p)[token] / q[token]))
    deferral = None
    if isinstance(transform, Cascade):
        deferral = _mean(observed, _defers(transform, observed.pairs))
    return {
        **_quality(observed, outputs),
        "rejection": _mean(observed, list(map(total_variation, drawn, outputs))),
        # The transform also needs the draft's distribution after its last token.
        **_calls(observed, accepted, np.full(len(accepted), len(accepted[0]) + 1)),
        "deferral": deferral,
    }


def _sequential(observed: Observed, transform: Any) -> dict[str, Any]:
    """Measure a sequential cascade: the draft is called for every token, the target on deferral."""
    share = _mean(observed, _defers(transform, observed.pairs))
    return {
        **_quality(observed, [transformed(transform, q, p) for q, p in observed.pairs]),
        "rejection": None,
        "calls": share,
        "draft_calls": ONE,
        "deferral": share,
    }


def _windows(observed: Observed, transform: Any) -> dict[str, Any]:
    """Measure BiLD as published: the target also chooses the token after L drafted tokens."""
    count, length = observed.drafts.shape
    deferred, drafted = _defers(transform, observed.pairs), 0
    for at, text in enumerate(observed.token_texts):
        drafted = 0 if at and text != observed.token_texts[at - 1] else drafted
        deferred[at] |= drafted == length
        drafted = 0 if deferred[at] else drafted + 1
    laws = [p if chosen else q for chosen, (q, p) in zip(deferred, observed.pairs, strict=True)]
    cut, unsure = np.empty((2, count, length), dtype=bool)
    for draft, path in enumerate(zip(observed.draft_path, observed.target_path, strict=True)):
        cut[draft] = _defers(transform, list(zip(*path, strict=True)))
        unsure[draft] = [transform.rule.unsure(q) for q in path[0]]
    return {
        **_quality(observed, [_decoding_law(observed, law) for law in laws]),
        "rejection": None,
        **_calls(observed, ~cut, np.minimum(1 + _run_length(~unsure), length)),
        "deferral": _mean(observed, deferred),
    }


def _sequence(observed: Observed, alpha: float) -> dict[str, Any]:
    """Measure a sequence-level cascade: a response of L tokens has q(y) [kept] + p(y) q(defer)."""
    if observed.greedy:
        raise InvalidInputError("sequence-chow needs a temperature above 0, got 0: leave it out")
    if not observed.responses.size:
        raise InvalidInputError("sequence-chow needs responses: call observe(..., responses=64)")
    length = observed.drafts.shape[1]
    whole = observed.starts + length <= np.searchsorted(
        observed.token_texts, observed.draft_texts, side="right"
    )
    if not whole.any():
        raise InvalidInputError(f"no text has {length} tokens left at drafts: use a shorter length")
    window = observed.starts[whole, None] + np.arange(length)
    with np.errstate(divide="ignore"):
        log_q, log_p = (
            np.log(rows[window, observed.tokens[window]]).sum(axis=1)
            for rows in (observed.draft_distributions, observed.targets)
        )
        threshold = np.log1p(-alpha)
        deferral = (observed.responses < threshold).mean(axis=1)
        defers = log_q < threshold
        # Estimate at least half a deferred response: the text itself shows that some defer.
        least = np.where(defers, 0.5 / observed.responses.shape[1], 0.0)
        again = np.log(np.maximum(deferral[whole], least)) + log_p
        found = np.logaddexp(np.where(defers, -np.inf, log_q), again)
    texts = np.unique(observed.draft_texts[whole], return_inverse=True)[1]
    share = ratio(np.bincount(observed.draft_texts, deferral), np.bincount(observed.draft_texts))
    return {
        "log_likelihood": ratio(np.bincount(texts, found), length * np.bincount(texts)),
        "log_likelihood_gain": ratio(
            np.bincount(texts, found - log_p), length * np.bincount(texts)
        ),
        "accuracy": None,
        "accuracy_gain": None,
        "rejection": None,
        "calls": share,
        "draft_calls": ONE,
        "deferral": share,
    }


def _decoding_law(observed: Observed, law: FloatArray) -> FloatArray:
    """Return the distribution of decoded tokens: greedy, or `law` itself."""
    return greedy_distribution(law) if observed.greedy else law


def _defers(transform: Cascade, pairs: Sequence[tuple[FloatArray, FloatArray]]) -> Mask:
    return np.array([transform.defers(q, p) for q, p in pairs])


def _run_length(continues: npt.NDArray[Any]) -> FloatArray:
    """Return the number of leading True per row, or the expected number for probabilities."""
    found: FloatArray = np.cumprod(continues, axis=1).sum(axis=1)
    return found


def _quality(observed: Observed, laws: Sequence[FloatArray]) -> dict[str, Any]:
    """Return log-likelihood and probability of the text's tokens given the preceding text."""
    target, found = (
        np.array([law[token] for law, token in zip(rows, observed.tokens, strict=True)])
        for rows in ([_decoding_law(observed, p) for p in observed.targets], laws)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(found), np.log(found) - np.log(target))
    likelihood, gain = (None if observed.greedy else _mean(observed, rows) for rows in logs)
    return {
        "log_likelihood": likelihood,
        "log_likelihood_gain": gain,
        "accuracy": _mean(observed, found),
        "accuracy_gain": _mean(observed, found - target),
    }


def _mean(observed: Observed, values: npt.ArrayLike) -> Estimate:
    """Estimate the mean over all tokens of the texts."""
    weights = np.asarray(values, dtype=np.float64)
    sums = np.bincount(observed.token_texts, weights)
    return ratio(sums, np.bincount(observed.token_texts))


def _calls(
    observed: Observed, accepted: npt.NDArray[Any], draft_calls: npt.NDArray[Any]
) -> dict[str, Any]:
    """Return the calls per token from acceptances and draft calls of each round."""
    rounds, tokens, drafts = (
        np.bincount(observed.draft_texts, each)
        for each in (np.ones(len(draft_calls)), 1.0 + _run_length(accepted), draft_calls)
    )
    return {"calls": ratio(rounds, tokens), "draft_calls": ratio(drafts, tokens)}


def _check_alpha(alpha: float) -> float:
    return number(alpha, "the threshold alpha", 0.0, 1.0)


def _greedy_lossy(alpha: float) -> Transform:
    Lossy(alpha)  # checks the range of alpha
    return GreedyTokenCascade(TokenV3(alpha))


METHODS: Mapping[str, Method] = {
    "lossy": Method(Lossy, _greedy_lossy, _speculative),
    "lossy-beta-1": Method(partial(Lossy, beta=1.0), _greedy_lossy, _speculative),
    **{name: _by_rule(name, _speculative) for name in RULES},
    **{f"sequential-{name}": _by_rule(name, _sequential) for name in ("chow", "chow-log")},
    **{f"oracle-{name}": _by_rule(name, _sequential) for name in ("diff", "diff-log", "opt")},
    **{f"bild-fallback-{fallback:g}": _published(fallback) for fallback in FALLBACKS},
    "sequence-chow": Method(_check_alpha, _check_alpha, _sequence),
}
"""Cascades by name.  At temperature 0 lossy decoding accepts a drafted token if p is at least
1 - alpha of the largest p, for any beta."""
