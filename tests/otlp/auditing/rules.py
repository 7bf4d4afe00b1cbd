"""Verification rules as users write them, right and wrong; each a callable for `otlp.audit`.

And a pair to audit them on, and samplers of drafts for ``otlp audit --drafts``.
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
    """All drafts of one path at once: ratios, uniforms, first rejection, multinomial."""
    ratio = p[draft_tokens] / q[draft_tokens]
    accepted = rng.random(len(draft_tokens)) <= ratio
    if (np.cumsum(~accepted) < 1).sum() == len(draft_tokens):
        return draft_tokens[-1]
    left = np.clip(p - q, 0.0, None)
    return int(np.argmax(rng.multinomial(1, left / left.sum())))


def inversion_style(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Logarithms and inversion of the cumulative law."""
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
    """Accept each draft with min(1, p/q); what is left after one is put out by another function.

    Right for one draft, where that is right; wrong for several, as the residual is not updated.
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
"""The recovered token by an exponential race."""
gamma_race = in_turn(lambda left, rng: np.argmax(left / rng.standard_gamma(1.0, left.size)))
"""The same race, with waiting times from another method."""
each_in_turn = in_turn(lambda left, rng: rng.choice(left.size, p=left / left.sum()))
"""Wrong for several drafts."""
unnormalised_choice = in_turn(lambda left, rng: rng.choice(left.size, p=left))
"""Wrong: the residual does not sum to one; numpy refuses it."""
unnormalised_search = in_turn(searched)
"""Wrong: the same, falling off the end of the cumulative sum."""
unnormalised_multinomial = in_turn(lambda left, rng: np.argmax(rng.multinomial(1, left)))
"""Wrong: the same, and numpy gives the missing mass to the last token."""
unnormalised_default = in_turn(lambda left, rng: min(searched(left, rng), left.size - 1))
"""Wrong: the same, with a default token."""
forgets_to_return = in_turn(lambda left, rng: None)
"""Wrong: returns None if all drafts are rejected."""


def overwriting(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong, and prints, and writes to what it was given."""
    print("printed by a rule")
    p[:] = q[:] = 0
    return draft_tokens[0]


def unfollowed(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Right, but its draws are not from a finite set."""
    rng.normal()
    return eagle_style(draft_tokens, p, q, rng)
