"""Verification rules as users write them, right and wrong; each a callable for `otlp.audit`."""

from __future__ import annotations

from typing import Any

import numpy as np


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


def vllm_style(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """The recovered token by an exponential race."""
    token = draft_tokens[0]
    if p[token] / q[token] >= rng.random():
        return token
    return np.argmax(np.maximum(p - q, 0.0) / rng.exponential(size=len(p)))


def gamma_race(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """The same race, with waiting times from another method."""
    token = draft_tokens[0]
    if p[token] / q[token] >= rng.random():
        return token
    return np.argmax(np.maximum(p - q, 0.0) / rng.standard_gamma(1.0, size=len(p)))


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


def each_in_turn(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: accepts each draft with min(1, p/q) and never updates the residual."""
    for token in draft_tokens:
        if rng.random() < p[token] / q[token]:
            return token
    residual = np.maximum(p - q, 0.0)
    return rng.choice(len(p), p=residual / residual.sum())


def unnormalised_choice(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: the residual does not sum to one; numpy refuses it."""
    token = draft_tokens[0]
    if rng.random() < p[token] / q[token]:
        return token
    return rng.choice(len(p), p=np.maximum(p - q, 0.0))


def unnormalised_search(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: the same, falling off the end of the cumulative sum."""
    token = draft_tokens[0]
    if rng.random() < p[token] / q[token]:
        return token
    return int(np.searchsorted(np.cumsum(np.maximum(p - q, 0.0)), rng.random(), side="right"))


def unnormalised_multinomial(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: the same, and numpy gives the missing mass to the last token."""
    token = draft_tokens[0]
    if rng.random() < p[token] / q[token]:
        return token
    return np.argmax(rng.multinomial(1, np.maximum(p - q, 0.0)))


def unnormalised_default(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: the same, with a default token."""
    return min(unnormalised_search(draft_tokens, p, q, rng), len(p) - 1)


def forgets_to_return(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Wrong: returns None if all drafts are rejected."""
    for token in draft_tokens:
        if rng.random() < p[token] / q[token]:
            return token
    return None
