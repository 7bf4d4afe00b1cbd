"""Distributions of a draft and a target model on held-out text, and drafts that start in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from otlp.checks import whole_number
from otlp.decode.choosing import RandomChooser
from otlp.decode.drafting import iid_paths, mixed_tree
from otlp.decode.models.model import Model, check_pair
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Observed:
    """Distributions of both models on held-out text, and on drafts that start in it.

    Attributes
    ----------
    draft_distributions, targets : ndarray, shape (n, V)
        q and p at every token of the texts.
    tokens : ndarray of int64, shape (n,)
        The tokens of the texts.
    drafts : ndarray of int64, shape (m, L)
        Draft tokens that start at positions of the texts.
    draft_path, target_path : ndarray, shape (m, L, V)
        q and p along the drafts.
    token_texts, draft_texts : ndarray of int64, shape (n,), shape (m,)
        Index of the text of each token and of each draft.
    starts : ndarray of int64, shape (m,)
        Index in `tokens` of the position where each draft starts.
    responses : ndarray, shape (m, R)
        log q of R responses of L tokens at the start of each draft.
    greedy : bool
        Whether decoding is greedy; the distributions are then at temperature 1.
    """

    draft_distributions: FloatArray
    targets: FloatArray
    tokens: IntArray
    drafts: IntArray
    draft_path: FloatArray
    target_path: FloatArray
    token_texts: IntArray
    draft_texts: IntArray
    starts: IntArray
    responses: FloatArray
    greedy: bool

    @cached_property
    def pairs(self) -> list[tuple[FloatArray, FloatArray]]:
        """Q and p at every token of the texts."""
        return list(zip(self.draft_distributions, self.targets, strict=True))


def observe(
    draft: Model,
    target: Model,
    texts: Sequence[IntArray],
    *,
    length: int = 5,
    skip: int = 16,
    stride: int = 8,
    seed: int = 0,
    responses: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> Observed:
    """Read held-out texts with both models, and draft at every `stride`-th position.

    Parameters
    ----------
    draft, target : Model
        Models; their `sampling` is used unchanged.  At temperature 0 tokens are the most likely
        tokens, and the distributions are those at temperature 1.
    texts : sequence of ndarray of int64
    length : int
        Number L of draft tokens.
    skip : int
        Number of first tokens of each text that are only context, at least 1.
    stride : int
        Distance between the starts of two drafts, in tokens.
    seed : int
    responses : int
        Number of responses of the draft at each start; only ``sequence-chow`` needs responses.
    progress : callable
        Called after each text.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, only one model is at temperature 0, `texts` is empty, a text
        is not longer than `skip`, or a number is out of range.

    Notes
    -----
    One call of each model per text, one round per draft, and L calls of the draft per start if
    there are responses.  Memory is 16 (n + m L) V bytes.
    """
    check_pair(draft, target)
    for name, value in (("length", length), ("skip", skip), ("stride", stride)):
        whole_number(value, name)
    if not texts:
        raise InvalidInputError("texts must not be empty: give at least one")
    for number, text in enumerate(texts, start=1):
        if text.size <= skip:
            raise InvalidInputError(
                f"text {number} must have more than {skip} tokens of context, got {text.size}"
            )
    whole_number(responses, "responses", 0)
    greedy = target.sampling.temperature == 0.0
    if greedy != (draft.sampling.temperature == 0.0):
        raise InvalidInputError("one model is at temperature 0 and the other is not: set both")
    distributions = partial(_distributions, greedy=greedy)
    chooser = RandomChooser(np.random.default_rng(seed))
    response_chooser = RandomChooser(np.random.default_rng([seed, 1]))
    drafting = mixed_tree([(1, 0)] * length) if greedy else iid_paths(1, length)
    read: list[list[FloatArray]] = [[], []]
    along: list[list[FloatArray]] = [[], []]
    drafts, answers, starts, first = [], [], [], 0
    for text in texts:
        chain = TokenTree(
            np.append(-1, text[skip:-1]), np.arange(-1, text.size - skip - 1, dtype=np.int64)
        )
        for model, rows in zip((draft, target), read, strict=True):
            model.start(text[:skip])
            rows.append(distributions(model, chain, np.arange(len(chain))))
        for place in range(skip, text.size, stride):
            for model in (draft, target):
                model.start(text[:place])
            tree = drafting.draft(draft, chooser)
            drafts.append(tree.tokens[1:])
            along[0].append(distributions(draft, tree, np.arange(length)))
            along[1].append(distributions(target, tree, np.arange(length)))
            starts.append(first + place - skip)
            answers.append(_responses(draft, text[:place], responses, length, response_chooser))
        first += text.size - skip
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
        np.array(starts),
        np.stack(answers),
        greedy,
    )


def _distributions(model: Model, tree: TokenTree, nodes: IntArray, *, greedy: bool) -> FloatArray:
    if greedy:
        return model.sampling.at(1.0).distributions(model.logits(tree, nodes))
    return model.distributions(tree, nodes)


def _responses(
    draft: Model, text: IntArray, count: int, length: int, chooser: RandomChooser
) -> FloatArray:
    """Return the log probabilities of `count` responses of the draft, shape (count,)."""
    if not count:
        return np.empty(0)
    draft.start(text)
    tree = iid_paths(count, length).draft(draft, chooser)
    found = np.zeros(len(tree))
    for node in range(1, len(tree)):
        above = int(tree.parents[node])
        found[node] = found[above] + np.log(tree.distributions[above][tree.tokens[node]])
    return found[tree.leaves]
