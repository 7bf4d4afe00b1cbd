"""Verification rules as users write them, correct and wrong; each a callable for `otlp.audit`.

Also a pair of p and q to audit them on, and samplers of drafts for ``otlp audit --drafts``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

P = np.array([0.08, 0.3, 0.02, 0.45, 0.15])
Q = np.array([0.3, 0.1, 0.25, 0.25, 0.1])


def honest(q: Any, rng: Any) -> Any:
    return rng.choice(len(q), size=2, p=q)


def greedy(q: Any, rng: Any) -> Any:
    return [int(np.argmax(q))] * 2


def leviathan(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Single-draft speculative sampling."""
    token = draft_tokens[0]
    if rng.random() < min(1.0, p[token] / q[token]):
        return token
    residual = np.maximum(p - q, 0.0)
    return rng.choice(len(p), p=residual / residual.sum())


def transformers_style(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Verify all drafts of a path at once: ratios, uniforms, first rejection, multinomial."""
    ratio = p[draft_tokens] / q[draft_tokens]
    accepted = rng.random(len(draft_tokens)) <= ratio
    if (np.cumsum(~accepted) < 1).sum() == len(draft_tokens):
        return draft_tokens[-1]
    left = np.clip(p - q, 0.0, None)
    return int(np.argmax(rng.multinomial(1, left / left.sum())))


def inversion_style(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Use logarithms and inversion of the cumulative distribution."""
    token = draft_tokens[0]
    with np.errstate(divide="ignore"):
        if np.log(rng.uniform()) <= np.log(p[token]) - np.log(q[token]):
            return token
    left = np.maximum(p - q, 0.0)
    return np.searchsorted(np.cumsum(left), rng.random() * left.sum(), side="right")


def eagle_style(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Recursive rejection sampling for drafts with replacement."""
    for token in draft_tokens:
        if rng.random() <= p[token] / q[token]:
            return token
        p = np.maximum(p - q, 0.0)
        p /= p.sum()
    return rng.choice(len(p), p=p)


def eagle_style_without_replacement(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Recursive rejection sampling for drafts without replacement; writes to q."""
    for token in draft_tokens:
        if rng.random() <= p[token] / q[token]:
            return token
        p = np.maximum(p - q, 0.0)
        p /= p.sum()
        q[token] = 0.0
        q /= max(q.sum(), 1e-300)
    return rng.choice(len(p), p=p)


def in_turn(recovered: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Accept each draft with min(1, p/q); another function draws from the residual.

    Correct for one draft if that function is; wrong for several, as the residual is not updated.
    """

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        for token in draft_tokens:
            if rng.random() < p[token] / q[token]:
                return token
        return recovered(np.maximum(p - q, 0.0), rng)

    return rule


def searched(left: Any, rng: Any) -> int:
    return int(np.searchsorted(np.cumsum(left), rng.random(), side="right"))


vllm_style = in_turn(lambda left, rng: np.argmax(left / rng.exponential(size=left.size)))
"""Draws the recovered token by an exponential race."""
gamma_race = in_turn(lambda left, rng: np.argmax(left / rng.standard_gamma(1.0, left.size)))
"""The same race, with waiting times from another method."""
each_in_turn = in_turn(lambda left, rng: rng.choice(left.size, p=left / left.sum()))
"""Wrong for more than one draft."""
unnormalised_choice = in_turn(lambda left, rng: rng.choice(left.size, p=left))
"""Wrong: the residual does not sum to one; numpy refuses it."""
unnormalised_search = in_turn(searched)
"""Wrong: an index beyond the end of the cumulative sum."""
unnormalised_multinomial = in_turn(lambda left, rng: np.argmax(rng.multinomial(1, left)))
"""Wrong: numpy assigns the missing mass to the last token."""
unnormalised_default = in_turn(lambda left, rng: min(searched(left, rng), left.size - 1))
"""Wrong: a default token gets the missing mass."""
forgets_to_return = in_turn(lambda left, rng: None)
"""Wrong: returns None if all drafts are rejected."""


def overwriting(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong; also prints, and overwrites its arguments."""
    print("printed by a rule")
    p[:] = q[:] = 0
    return draft_tokens[0]


def unfollowed(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Correct, but with draws from a continuous distribution, which cannot be enumerated."""
    rng.normal()
    return eagle_style(draft_tokens, p, q, rng)
