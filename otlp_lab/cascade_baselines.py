"""What speculative cascades are held against, as published: cascades a call at a time, and BiLD.

Source: Narasimhan et al. 2025, Faster Cascades via Speculative Decoding: Eq. 1, Algorithms 2 and 3,
Appendix E.5; the last is Kim et al. 2023, Speculative Decoding with Big Little Decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otlp.checks import is_a, number, token_ids, whole_number
from otlp.decode.cascades import BigLittle, Rule, check_rule
from otlp.decode.models.model import Model, check_pair
from otlp.decode.tree import ROOT, TokenTree
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError

Choose = Callable[[FloatArray], int]
"""From a distribution to a token: ``chooser.choose`` of a `Chooser` samples, `numpy.argmax` is
greedy decoding.  Greedily a rule is to be its limit, ``rule.greedy()``, and the models keep a
positive temperature, which the rule sees."""


@dataclass(frozen=True, eq=False)
class CascadeRun:
    """What a cascade wrote, and what it asked for.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        The text after the context.
    deferrals : int
        How many of them the target chose.
    draft_calls, target_calls : int
        Calls of each model.
    """

    tokens: IntArray
    deferrals: int
    draft_calls: int
    target_calls: int


def sequential_cascade(
    draft: Model, target: Model, rule: Rule, context: Sequence[int], tokens: int, choose: Choose
) -> CascadeRun:
    """Write a text token by token, each from the model that a rule chooses.

    With `Chow` or `ChowLog` the target is called only where the rule defers (Algorithm 2,
    TokenCascade).  All other rules look at p before they decide, at every token (Algorithm 3,
    OracleCascade): they show what deferral could give, not what it costs.

    Parameters
    ----------
    draft, target : Model
    rule : Rule
    context : sequence of int
    tokens : int
        How many to write.
    choose : callable
        See `Choose`.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, the rule does not defer by prefix, or a number is out of range.
    """
    check_rule(rule, "prefix")
    _begin(draft, target, context, tokens, choose)
    oracle = getattr(rule, "needs_target", True)
    written, deferrals = [], 0
    for _ in range(tokens):
        q = p = _next(draft)
        if oracle:
            p = _next(target)
        deferred = rule.defers(q, p)
        if deferred and not oracle:
            p = _next(target)
        deferrals += deferred
        written.append(int(choose(p if deferred else q)))
        for model in (draft, target):
            model.advance(ROOT, 0, written[-1])
    return _run(written, deferrals, tokens, tokens if oracle else deferrals)


def sequence_cascade(
    draft: Model, target: Model, alpha: float, context: Sequence[int], tokens: int, choose: Choose
) -> CascadeRun:
    """Let the draft write a response; where q(response) < 1 - alpha the target writes another.

    Chow's rule for sequences (Eq. 1).  The law of a response y is q(y) [q(y) >= 1 - alpha] +
    p(y) q(defer).

    Parameters
    ----------
    draft, target : Model
    alpha : float
        In [0, 1]; 1 never defers.
    context : sequence of int
    tokens : int
        Length of a response.
    choose : callable
        See `Choose`.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, or a number is out of its range.
    """
    number(alpha, "the threshold alpha", 0.0, 1.0)
    _begin(draft, target, context, tokens, choose)
    response, confidence = _write(draft, tokens, choose)
    if confidence >= 1.0 - alpha:
        return _run(response, 0, tokens, 0)
    return _run(_write(target, tokens, choose)[0], tokens, tokens, tokens)


def big_little_decoding(
    draft: Model,
    target: Model,
    rule: BigLittle,
    most: int,
    context: Sequence[int],
    tokens: int,
    choose: Choose,
) -> CascadeRun:
    """Write a text by BiLD as published: fall back to the target, roll back to where it differs.

    The draft writes until it is unsure, or has written `most` tokens.  One call of the target then
    scores them all; the text is cut before the first token where ``rule.rollback`` defers, whatever
    the token is, and the target chooses the next one.  Where the text ends before the draft is
    unsure, its last tokens are not verified.  With a rollback that never defers it is the cascade
    of Appendix E.1, whose draft may write `most` tokens between two calls.

    Parameters
    ----------
    draft, target : Model
    rule : BigLittle
    most : int
        Tokens of a window, gamma, at least 1; the paper takes 10.
    context : sequence of int
    tokens : int
        How many to write.
    choose : callable
        See `Choose`.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, the rule is another, or a number is out of its range.
    """
    is_a(rule, BigLittle, "rule")
    whole_number(most, "the window, most,")
    _begin(draft, target, context, tokens, choose)
    written: list[int] = []
    drafted = calls = 0
    while len(written) < tokens:
        window = TokenTree(np.array([-1]), np.array([-1]))
        laws: list[FloatArray] = []
        while (depth := len(window) - 1) < most and len(written) + depth < tokens:
            laws.append(draft.distributions(window, np.array([depth]))[0])
            if rule.unsure(laws[-1]):
                break
            token = int(choose(laws[-1]))
            window = TokenTree(np.append(window.tokens, token), np.append(window.parents, depth))
        drafted += len(laws)
        path = window.tokens[1:].tolist()
        if len(written) + depth == tokens:
            return _run(written + path, calls, drafted, calls)
        scored = target.distributions(window, np.arange(len(window)))
        calls += 1
        pairs = zip(laws[:depth], scored[:depth], strict=True)
        cut = next((at for at, (q, p) in enumerate(pairs) if rule.rollback.defers(q, p)), depth)
        token = int(choose(scored[cut]))
        written += [*path[:cut], token]
        for model in (draft, target):
            model.advance(window, cut, token)
    return _run(written, calls, drafted, calls)


def _begin(
    draft: Model, target: Model, context: Sequence[int], tokens: int, choose: Choose
) -> None:
    check_pair(draft, target)
    whole_number(tokens, "tokens", 0)
    if not callable(choose):
        raise InvalidInputError(f"choose is {choose!r:.60}: give chooser.choose, or numpy.argmax")
    given = token_ids(context, "context", target.vocab_size)
    for model in (draft, target):
        model.start(given)


def _next(model: Model) -> FloatArray:
    found: FloatArray = model.distributions(ROOT, np.array([0]))[0]
    return found


def _write(model: Model, tokens: int, choose: Choose) -> tuple[list[int], float]:
    written, probability = [], 1.0
    for _ in range(tokens):
        law = _next(model)
        written.append(int(choose(law)))
        probability *= float(law[written[-1]])
        model.advance(ROOT, 0, written[-1])
    return written, probability


def _run(written: list[int], deferrals: int, draft_calls: int, target_calls: int) -> CascadeRun:
    return CascadeRun(np.array(written, dtype=np.int64), deferrals, draft_calls, target_calls)
