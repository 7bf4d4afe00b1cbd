"""Published baselines of speculative cascades: sequential cascades and BiLD.

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
"""Maps a distribution to a token: ``chooser.choose`` of a `Chooser` for sampling, `numpy.argmax`
for greedy decoding.  For greedy decoding pass the limit of a rule, ``rule.greedy()``, and models
with a positive temperature, because the rule uses their distributions."""


@dataclass(frozen=True, eq=False)
class CascadeRun:
    """Text and model calls of a cascade.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        The text after the context.
    deferrals : int
        Number of tokens chosen by the target.
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
    """Decode token by token, each token from the model selected by a deferral rule.

    With `Chow` or `ChowLog` the target is called only if the rule defers (Algorithm 2,
    TokenCascade).  All other rules use p at every token before they decide (Algorithm 3,
    OracleCascade): they measure the possible quality of deferral, not its cost.

    Parameters
    ----------
    draft, target : Model
    rule : Rule
    context : sequence of int
    tokens : int
        Number of tokens to decode.
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
    """Decode a response from the draft, and from the target if q(response) < 1 - alpha.

    This is Chow's rule for sequences (Eq. 1).  The distribution of a response y is
    q(y) [q(y) >= 1 - alpha] + p(y) q(defer).

    Parameters
    ----------
    draft, target : Model
    alpha : float
        Threshold in [0, 1]; 1 never defers.
    context : sequence of int
    tokens : int
        Length of a response.
    choose : callable
        See `Choose`.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, or a number is out of range.
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
    """Decode by BiLD as published, with fallback to the target and rollback.

    The draft decodes until it is unsure or has decoded `most` tokens.  One call of the target then
    scores these tokens.  The text is cut before the first position where ``rule.rollback`` defers,
    independently of the token at this position, and the target chooses the next token.  If the text
    ends before the draft is unsure, its last tokens are not verified.  With a rollback that never
    defers this is the cascade of Appendix E.1, whose draft may decode `most` tokens between two
    target calls.

    Parameters
    ----------
    draft, target : Model
    rule : BigLittle
    most : int
        Maximum number of tokens gamma of a window, at least 1; the paper uses 10.
    context : sequence of int
    tokens : int
        Number of tokens to decode.
    choose : callable
        See `Choose`.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, `rule` is not a BigLittle, or a number is out of range.
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
        raise InvalidInputError(
            f"choose must be chooser.choose or numpy.argmax; got {choose!r:.60}"
        )
    prompt = token_ids(context, "context", target.vocab_size)
    for model in (draft, target):
        model.start(prompt)


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
