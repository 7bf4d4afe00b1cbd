"""Reconstructions of mistakes in released software, and the same rules without the mistakes.

The mistakes are reconstructed from reports, with as little code as possible.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import DraftedPaths, DraftedTree
from otlp.decode import random_pair
from otlp.testing.plain_block import verify_block


def models(vocab: int, length: int, seed: int = 0) -> tuple[list[Any], list[Any]]:
    draft, target = random_pair(vocab, length, np.random.default_rng(seed))
    return target.tables, draft.tables


def left(p: Any, q: Any) -> Any:
    rest = np.maximum(p - q, 0.0)
    return rest / rest.sum()


def token_rule(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Speculative sampling of one path."""
    for i, token in enumerate(x[0]):
        if rng.random() * q[0, i, token] >= p[0, i, token]:
            return [*x[0, :i], rng.choice(p.shape[-1], p=left(p[0, i], q[0, i]))]
    return [*x[0], rng.choice(p.shape[-1], p=p[0, -1])]


def products_of_uniforms(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Block verification of vllm-ascend: the product of ratios against the product of uniforms."""
    weight, product, accepted = 1.0, 1.0, 0
    for i, token in enumerate(x[0]):
        weight = min(1.0, weight * p[0, i, token] / q[0, i, token])
        product = product * rng.random()
        if product <= weight:
            accepted = i + 1
    if accepted == x.shape[1]:
        return [*x[0], rng.choice(p.shape[-1], p=p[0, -1])]
    law = left(p[0, accepted], q[0, accepted])
    return [*x[0, :accepted], rng.choice(law.size, p=law)]


def late_drafts_against_the_first_residual(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Compare the third of three paths with the residual of the first, not of the second."""
    law, tested = p[0, 0], p[0, 0]
    for k, token in enumerate(x[:, 0]):
        if rng.random() <= tested[token] / q[0, 0, token]:
            return [token]
        law = left(law, q[0, 0])
        tested = law if k == 0 else tested
    return [rng.choice(law.size, p=law)]


def recursive_rejection(x: Any, p: Any, q: Any, rng: Any, renormalised: bool = True) -> Any:
    """Two siblings without replacement; the EAGLE code of SpecHub does not renormalise q."""
    law, draft = p[0], q[0].copy()
    for token in x:
        if rng.random() <= law[token] / draft[token]:
            return [token]
        law = left(law, draft)
        draft[token] = 0.0
        if renormalised and draft.any():
            draft = draft / draft.sum()
    return [rng.choice(law.size, p=law)]


def target_only(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Use one coin for all children: accept the child at which the target mass passes the coin."""
    coin, passed, law = rng.random(), 0.0, p[0].copy()
    for token in x:
        passed += p[0][token]
        if coin <= passed:
            return [token]
        law[token] = 0.0
    return [rng.choice(law.size, p=law / law.sum())]


def coarse_race(tables: Any, rng: Any) -> Any:
    """Sampler of Sequoia in half precision: a race of numbers with few bits, some of them 0."""
    coarse = rng.integers(8, size=tables[0].size) / 8
    with np.errstate(divide="ignore"):
        return [np.argmax(np.log(coarse) / tables[0])]


MEMORY = np.array([0.3, 1.7])


def unwritten_temperature(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Sampling of vLLM on a CPU, with a temperature read from uninitialised memory."""
    scaled = p.copy()
    scaled[0, :2] **= 1.0 / MEMORY[:, None]
    return token_rule(x, scaled / scaled.sum(-1, keepdims=True), q, rng)


def in_turn(x: Any, p: Any, q: Any, rng: Any, updated: bool = True) -> Any:
    """Siblings in turn; dynamicTreeKernels.cu of TensorRT-LLM did not update the residual."""
    law = p[0]
    for token in x:
        if rng.random() * q[0][token] < law[token]:
            return [token]
        if updated:
            law = left(law, q[0])
    return [rng.choice(law.size, p=law if updated else left(p[0], q[0]))]


def own_token_alone(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """A residual that subtracts only the q of the drafted token, as in xLLM."""
    token = x[0, 0]
    if rng.random() * q[0, 0, token] < p[0, 0, token]:
        return [token]
    law = p[0, 0].copy()
    law[token] = 0.0
    return [rng.choice(law.size, p=law / law.sum())]


def rounded_draft(tables: Any, rng: Any) -> Any:
    """Draft from a q rounded to four bits, as bfloat16 rounds to eight."""
    mantissa, exponent = np.frexp(tables[0])
    law = np.ldexp(np.round(mantissa * 16) / 16, exponent)
    return [rng.choice(law.size, p=law / law.sum())]


def exact_race(tables: Any, rng: Any) -> Any:
    """The race with numbers that were not rounded."""
    return [np.argmax(tables[0] / rng.exponential(size=tables[0].size))]


def told_draft(tables: Any, rng: Any) -> Any:
    """Draft from the q passed to the rule."""
    return [rng.choice(tables[0].size, p=tables[0])]


def one_uniform_a_token(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Block verification that compares each prefix with a separate uniform."""
    return verify_block(x[0].tolist(), p[0].tolist(), q[0].tolist(), rng.random)


def looks_at_the_law(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Cut a path where the next distribution is flat, independent of the drawn token."""
    if q[0, 0].max() < 0.5:
        return [rng.choice(p.shape[-1], p=p[0, 0])]
    return token_rule(x, p, q, rng)


def looks_first(x: Any, p: Any, q: Any, rng: Any) -> Any:
    """Cut a path where the drawn token is unlikely."""
    if q[0, 0, x[0, 0]] < 0.5:
        return [rng.choice(p.shape[-1], p=p[0, 0])]
    return token_rule(x, p, q, rng)


ONE, PAIR = DraftedPaths(1, 1), DraftedTree([0, 0], "iid")


DIFFERENT = DraftedTree([0, 0], "without replacement")


SHIPPED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vllm-ascend's block verification": (products_of_uniforms, DraftedPaths(1, 2), {}),
    "greedy multi-path's traversal": (
        late_drafts_against_the_first_residual, DraftedPaths(3, 1), {},
    ),
    "SpecHub's EAGLE code": (partial(recursive_rejection, renormalised=False), DIFFERENT, {}),
    "SGLang's kernel of trees": (target_only, PAIR, {}),
    "Sequoia in fp16": (token_rule, ONE, {"sampler": coarse_race}),
    "vLLM's sampling on a CPU": (unwritten_temperature, DraftedPaths(1, 2), {}),
    "TensorRT-LLM's kernel of trees": (partial(in_turn, updated=False), PAIR, {}),
    "xLLM's residual": (own_token_alone, ONE, {}),
    "DeepSpec's bfloat16": (token_rule, ONE, {"sampler": rounded_draft}),
    "a path cut by a look": (looks_first, ONE, {}),
}  # fmt: skip
"""Rule, function that verifies, and function that drafts."""


MENDED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vllm-ascend's block verification": (one_uniform_a_token, DraftedPaths(1, 2), {}),
    "greedy multi-path's traversal": (in_turn, DraftedTree([0, 0, 0], "iid"), {}),
    "SpecHub's EAGLE code": (recursive_rejection, DIFFERENT, {}),
    "SGLang's kernel of trees": (target_only, DraftedTree([0, 0], "most likely"), {}),
    "Sequoia in fp16": (token_rule, ONE, {"sampler": exact_race}),
    "vLLM's sampling on a CPU": (token_rule, DraftedPaths(1, 2), {}),
    "TensorRT-LLM's kernel of trees": (in_turn, PAIR, {}),
    "xLLM's residual": (token_rule, ONE, {}),
    "DeepSpec's bfloat16": (token_rule, ONE, {"sampler": told_draft}),
    "a path cut by a look": (looks_at_the_law, ONE, {}),
}
"""The same rules without the mistake."""


RIGHT = MENDED | {
    "products of uniforms for one token": (products_of_uniforms, ONE, {}),
    "greedy multi-path's traversal of two paths": (
        late_drafts_against_the_first_residual, DraftedPaths(2, 1), {},
    ),
}  # fmt: skip
"""Cases in which the mistake has no effect."""
