"""Decoding with one random stream for draft and target; the text does not depend on the draft.

The exponential variables of `otlp_lab.list_sampling` are common random numbers, keyed by the
position in the text.  The draft tokens and the target's token at a position are functions of these
variables.  Drafting again at a position after a rejection uses the same variables, so the text is a
function of the target and the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otlp.checks import token_ids, whole_number
from otlp.decode.models.model import Model, check_pair
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ListRun:
    """Result of `list_decoding`.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        The text after the context.
    target_calls : int
        Number of target calls.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.one_stream import ListRun
    >>> ListRun(np.array([3, 1, 2]), target_calls=2).tokens.size
    3
    """

    tokens: IntArray
    target_calls: int


def race(distribution: FloatArray, times: FloatArray) -> int:
    """Return the token with the smallest time / probability, a sample of the distribution; O(V)."""
    possible = np.flatnonzero(distribution)
    return int(possible[np.argmin(times[possible] / distribution[possible])])


def list_decoding(
    draft: Model,
    target: Model,
    context: Sequence[int],
    *,
    paths: int,
    length: int,
    tokens: int,
    seed: int,
) -> ListRun:
    """Decode with K drafted paths by list sampling with all K lists at every position.

    Parameters
    ----------
    draft, target : Model
    context : sequence of int
    paths, length : int
        Number of paths K and path length L.
    tokens : int
        Number of tokens to decode.
    seed : int
        Seed of the stream, at least 0.  The text depends on the seed, the target, the context and
        K, and not on the draft or L.

    Returns
    -------
    ListRun

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, or a number is out of range.

    Notes
    -----
    This is the variant of Rowan, Phan and Khisti 2025 (arXiv:2506.05632) in which the target's race
    is over the lists of all K paths, including rejected paths.  O(K V) per drafted token.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp_lab.one_stream import list_decoding
    >>> draft, target = decode.random_pair(4, 8, np.random.default_rng(0))
    >>> other, _ = decode.random_pair(4, 8, np.random.default_rng(1))
    >>> def write(model):
    ...     return list_decoding(model, target, (), paths=2, length=2, tokens=5, seed=0)
    >>> write(draft).tokens.tolist() == write(other).tokens.tolist()
    True
    """
    check_pair(draft, target)
    for value, what in ((paths, "paths"), (length, "length"), (tokens, "tokens")):
        whole_number(value, what)
    whole_number(seed, "seed", 0)
    prompt = token_ids(context, "context", target.vocab_size)
    for model in (draft, target):
        model.start(prompt)

    def times(place: int) -> FloatArray:
        rng = np.random.default_rng([seed, place])
        return rng.standard_exponential((paths, target.vocab_size))

    written: list[int] = []
    calls = 0
    while len(written) < tokens:
        depth = min(length, tokens - len(written) - 1)
        stream = [times(len(written) + at) for at in range(depth + 1)]
        tree = _paths(draft, stream[:-1], paths)
        laws = target.distributions(tree, np.arange(len(tree)))
        calls += 1
        node, below = 0, {(int(tree.parents[n]), int(tree.tokens[n])): n for n in range(len(tree))}
        for at in range(depth + 1):
            token = race(laws[node], stream[at].min(axis=0))
            written.append(token)
            if (node, token) not in below:
                break
            node = below[node, token]
        for model in (draft, target):
            model.advance(tree, node, token)
    return ListRun(np.array(written, dtype=np.int64), calls)


def _paths(draft: Model, stream: Sequence[FloatArray], paths: int) -> TokenTree:
    """Return the tree of K paths; each path consists of the winners of its own lists."""
    tokens, parents, ends = [-1], [-1], [0] * paths
    for times in stream:
        tree = TokenTree(np.array(tokens), np.array(parents))
        nodes = sorted(set(ends))
        laws = dict(zip(nodes, draft.distributions(tree, np.array(nodes)), strict=True))
        made: dict[tuple[int, int], int] = {}
        for path, end in enumerate(ends):
            token = race(laws[end], times[path])
            if (end, token) not in made:
                made[end, token] = len(tokens)
                tokens.append(token)
                parents.append(end)
            ends[path] = made[end, token]
    return TokenTree(np.array(tokens), np.array(parents))
