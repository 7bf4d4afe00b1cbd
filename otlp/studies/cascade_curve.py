"""The quality-cost curve of speculative cascades: what a threshold gives up, and what it saves.

Quality is that of T(q, p) on held-out text: the mean log-likelihood of the text's tokens,
each after the text before it, and their mean probability, which is the expected 0-1 accuracy of
a sampled token.  Cost is target calls a token of speculative sampling towards T, with L tokens
drafted at places in the same text.  Every method meets the same q, p and drafts, and the
acceptance is averaged exactly given the drafts, so differences are paired; intervals take the texts
as the independent units.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding, Table 1, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.checks import whole_number
from otlp.decode.cascades import RULES, Cascade, Lossy, TokenCascade
from otlp.decode.choosing import RandomChooser
from otlp.decode.drafting import iid_paths
from otlp.decode.models.model import Model, check_pair
from otlp.decode.round import Transform, transformed
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, total_variation
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, ratio

UNIT = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
NATS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def _cascade(name: str) -> Callable[[float], Transform]:
    kind = TokenCascade if name.startswith("token-") else Cascade
    return lambda alpha: kind(RULES[name](alpha))  # type: ignore[arg-type]


METHODS: Mapping[str, Callable[[float], Transform]] = {
    "lossy": Lossy,
    **{name: _cascade(name) for name in RULES},
}
"""From a threshold to the transform, by name: lossy decoding and every deferral rule."""


def thresholds(method: str) -> tuple[float, ...]:
    """Thresholds that span the method's curve: probabilities, or nats for the log rules."""
    return NATS if method == "bild" or method.endswith("-log") else UNIT


@dataclass(frozen=True, eq=False)
class Observed:
    """What both models say about held-out text, and about drafts that start in it.

    Attributes
    ----------
    draft_distributions, targets : ndarray, shape (n, V)
        q and p at every token of the texts.
    tokens : ndarray of int64, shape (n,)
        The tokens of the texts.
    drafts : ndarray of int64, shape (m, L)
        Tokens drafted from places in the texts.
    draft_path, target_path : ndarray, shape (m, L, V)
        q and p along them.
    token_texts, draft_texts : ndarray of int64, shape (n,), shape (m,)
        Which text each token stands in, and each draft starts in.
    """

    draft_distributions: FloatArray
    targets: FloatArray
    tokens: IntArray
    drafts: IntArray
    draft_path: FloatArray
    target_path: FloatArray
    token_texts: IntArray
    draft_texts: IntArray


@dataclass(frozen=True)
class Point:
    """One method at one threshold.

    Attributes
    ----------
    method : str
    alpha : float
        The threshold.
    log_likelihood : Estimate
        Mean of log T at the text's tokens, in nats; exp(-log_likelihood) is the perplexity.
    log_likelihood_gain : Estimate
        The same less that of the target alone, which is what leniency gives up.
    accuracy : Estimate
        Mean of T at the text's tokens.
    accuracy_gain : Estimate
        The same less that of the target alone.
    rejection : Estimate
        Mean total variation distance of q and T, the chance that a drafted token is rejected.
    calls : Estimate
        Target calls a token of speculative sampling towards T.
    deferral : Estimate or None
        Share of places where the rule defers; None if it decides by token.  It is the number
        of target calls a token of the sequential token cascade (``chow``), and of the oracle that
        knows p for nothing (the other rules).
    """

    method: str
    alpha: float
    log_likelihood: Estimate
    log_likelihood_gain: Estimate
    accuracy: Estimate
    accuracy_gain: Estimate
    rejection: Estimate
    calls: Estimate
    deferral: Estimate | None

    def record(self) -> dict[str, object]:
        """Everything about the point, as JSON takes it: estimates as mean, low and high."""
        return {k: v.record() if isinstance(v, Estimate) else v for k, v in vars(self).items()}


def observe(
    draft: Model,
    target: Model,
    texts: Sequence[IntArray],
    *,
    length: int = 5,
    skip: int = 16,
    stride: int = 8,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> Observed:
    """Read held-out texts with both models, and draft at every `stride`-th place.

    Parameters
    ----------
    draft, target : Model
        Their `sampling` is used as it is.
    texts : sequence of ndarray of int64
    length : int
        How many tokens L are drafted.
    skip : int
        Tokens of each text that are only context, at least 1.
    stride, seed : int
    progress : callable
        Called after each text.

    Raises
    ------
    InvalidInputError
        If there are no texts, one is not longer than `skip`, or a number is less than 1.

    Notes
    -----
    One call of each model a text, and a round a draft.  Holds 16 (n + m L) V bytes.
    """
    check_pair(draft, target)
    for name, number in (("length", length), ("skip", skip), ("stride", stride)):
        whole_number(number, name)
    if not texts:
        raise InvalidInputError("there are no texts: give at least one")
    for number, text in enumerate(texts, start=1):
        if text.size <= skip:
            raise InvalidInputError(
                f"text {number} has {text.size} tokens: it needs more than the {skip} of context"
            )
    chooser = RandomChooser(np.random.default_rng(seed))
    drafting = iid_paths(1, length)
    read: list[list[FloatArray]] = [[], []]
    along: list[list[FloatArray]] = [[], []]
    drafts = []
    for text in texts:
        chain = TokenTree(
            np.append(-1, text[skip:-1]), np.arange(-1, text.size - skip - 1, dtype=np.int64)
        )
        for model, rows in zip((draft, target), read, strict=True):
            model.start(text[:skip])
            rows.append(model.distributions(chain, np.arange(len(chain))))
        for place in range(skip, text.size, stride):
            for model in (draft, target):
                model.start(text[:place])
            tree = drafting.draft(draft, chooser)
            drafts.append(tree.tokens[1:])
            along[0].append(np.stack([tree.distributions[node] for node in range(length)]))
            along[1].append(target.distributions(tree, np.arange(length)))
        progress()
    return Observed(
        np.concatenate(read[0]),
        np.concatenate(read[1]),
        np.concatenate([text[skip:] for text in texts]),
        np.stack(drafts),
        np.stack(along[0]),
        np.stack(along[1]),
        np.repeat(np.arange(len(texts)), [text.size - skip for text in texts]),
        np.repeat(np.arange(len(texts)), [len(range(skip, t.size, stride)) for t in texts]),
    )


def curve(observed: Observed, method: str, alphas: Sequence[float] | None = None) -> list[Point]:
    """Quality and cost of a method at each threshold.

    Parameters
    ----------
    observed : Observed
    method : str
        One of `METHODS`.
    alphas : sequence of float, optional
        By default `thresholds`.

    Raises
    ------
    InvalidInputError
        If there is no such method, or it does not take a threshold.
    """
    if method not in METHODS:
        raise InvalidInputError(f"there is no cascade {method!r}: choose from {', '.join(METHODS)}")
    chosen = thresholds(method) if alphas is None else alphas
    return [_point(observed, method, alpha, METHODS[method](alpha)) for alpha in chosen]


def _point(observed: Observed, method: str, alpha: float, transform: Transform) -> Point:
    pairs = list(zip(observed.draft_distributions, observed.targets, strict=True))
    aimed = [transformed(transform, q, p) for q, p in pairs]
    places = np.arange(observed.tokens.size)
    found = np.array([t[token] for t, token in zip(aimed, observed.tokens, strict=True)])
    alone = observed.targets[places, observed.tokens]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs, gains = np.log(found), np.log(found) - np.log(alone)
    apart = [total_variation(q, t) for (q, _), t in zip(pairs, aimed, strict=True)]
    deferral = None
    if isinstance(transform, Cascade):
        deferral = _mean(observed, [transform.rule.defers(q, p) for q, p in pairs])
    return Point(
        method,
        float(alpha),
        _mean(observed, logs),
        _mean(observed, gains),
        _mean(observed, found),
        _mean(observed, found - alone),
        _mean(observed, apart),
        _calls(observed, transform),
        deferral,
    )


def _mean(observed: Observed, values: npt.ArrayLike) -> Estimate:
    """Mean over all tokens of the texts."""
    weights = np.asarray(values, dtype=np.float64)
    sums = np.bincount(observed.token_texts, weights)
    return ratio(sums, np.bincount(observed.token_texts))


def _calls(observed: Observed, transform: Transform) -> Estimate:
    """Calls a token: a call yields 1 + sum over l of the chance to accept l drafted tokens."""
    accepted = np.empty(observed.drafts.shape)
    for draft, place in np.ndindex(accepted.shape):
        q, p = observed.draft_path[draft, place], observed.target_path[draft, place]
        token = observed.drafts[draft, place]
        accepted[draft, place] = min(1.0, float(transform(q, p)[token] / q[token]))
    tokens = 1.0 + np.cumprod(accepted, axis=1).sum(axis=1)
    return ratio(np.bincount(observed.draft_texts), np.bincount(observed.draft_texts, tokens))
