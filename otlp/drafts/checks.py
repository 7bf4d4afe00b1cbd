"""What may be asked of a draft scheme: its arguments, validated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.distribution import (
    FloatArray,
    IntArray,
    Mask,
    as_array,
    as_floats,
    frozen,
    real_number,
    sum_by,
    whole_number,
)
from otlp.drafts.token_sets import MEMORY_LIMIT, check_memory
from otlp.errors import InvalidInputError, TokenOutOfRangeError

MOST = 10_000
"""Most drafts of a scheme: what a scheme answers takes time in proportion to them."""

FEW = 64

WHOLE = 1e-9
"""By so much the shares of a token may miss one."""

NOTHING = frozen(np.empty(0, dtype=np.int64))


def check_count(n: int) -> int:
    """Validate the number of drafts."""
    if whole_number(n, "n") > MOST:
        raise InvalidInputError(f"n is {n}: the number of drafts must be at most {MOST:,}")
    return int(n)


def check_tuples(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate drafted tuples, shape (..., n).

    Raises
    ------
    InvalidInputError
        If the shape is another, or the entries are not integers.
    TokenOutOfRangeError
        If an id lies outside [0, V).
    """
    tokens = as_array(draft_tokens, "draft_tokens")
    if tokens.ndim == 0 or tokens.shape[-1] != n:
        raise _misshaped(tokens, n)
    return _in_range(tokens, n, vocab_size)


def check_tokens(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate one drafted tuple, shape (n,); see `check_tuples`."""
    tokens = as_array(draft_tokens, "draft_tokens")
    if tokens.shape != (n,):
        raise _misshaped(tokens, n)
    return _in_range(tokens, n, vocab_size)


def check_rows(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate many drafted tuples, shape (m, n); see `check_tuples`."""
    tokens = check_tuples(draft_tokens, n, vocab_size)
    if tokens.ndim != 2:
        raise InvalidInputError(
            f"draft_tokens has shape {tokens.shape}: it must be (m, {n}), one tuple a row"
        )
    return tokens


def check_drawn(drawn: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate the tokens that a next draft comes after, shape (m,), m < n."""
    tokens = as_array(drawn, "drawn")
    if tokens.ndim != 1 or tokens.size >= n:
        raise InvalidInputError(
            f"drawn has shape {tokens.shape}: it must hold fewer tokens than the n = {n} drafts"
        )
    return _in_range(tokens, tokens.size, vocab_size) if tokens.size else NOTHING


def _misshaped(tokens: npt.NDArray[Any], n: int) -> InvalidInputError:
    return InvalidInputError(
        f"draft_tokens has shape {tokens.shape} and type {tokens.dtype}: "
        f"it must hold n = {n} integer token ids"
    )


def _in_range(tokens: npt.NDArray[Any], n: int, vocab_size: int) -> IntArray:
    if tokens.dtype.kind not in "iu":
        raise _misshaped(tokens, n)
    if tokens.ndim == 1 and 0 < tokens.size <= FEW:
        ids = tokens.tolist()  # Python's own min and max: a few numbers are no work for numpy
        least, most = min(ids), max(ids)
    else:
        least, most = int(tokens.min(initial=0)), int(tokens.max(initial=0))
    if least < 0 or most >= vocab_size:
        raise TokenOutOfRangeError(
            f"token id {least if least < 0 else most} lies outside the vocabulary [0, {vocab_size})"
        )
    return tokens if tokens.dtype == np.int64 else tokens.astype(np.int64)


def check_order(order: npt.ArrayLike, vocab_size: int) -> IntArray:
    """Validate a permutation of the V tokens; O(V)."""
    given = as_array(order, "order")
    valid = given.shape == (vocab_size,) and given.dtype.kind in "iu"
    if valid and 0 <= given.min() and given.max() < vocab_size:
        seen = np.zeros(vocab_size, dtype=bool)
        seen[given] = True
        if seen.all():
            return given.astype(np.int64, copy=False)
    raise InvalidInputError(f"order must be a permutation of the tokens 0 .. {vocab_size - 1}")


def check_ranks(
    tokens: npt.ArrayLike, shares: npt.ArrayLike, support: Mask
) -> tuple[IntArray, FloatArray]:
    """Validate whose rank each is, and how often, both of shape (M,); O(V + M).

    Raises
    ------
    InvalidInputError
        If the shapes differ, a share is no probability, or those of a token in the support do not
        sum to one.
    TokenOutOfRangeError
        If an id lies outside [0, V).
    """
    given, parts = as_array(tokens, "tokens"), as_floats(shares, "shares")
    if given.ndim != 1 or given.dtype.kind not in "iu" or parts.shape != given.shape:
        raise InvalidInputError(
            f"tokens has shape {given.shape} and type {given.dtype}, and shares has shape "
            f"{parts.shape}: they must be token ids and as many probabilities, one a rank"
        )
    ids = _in_range(given, given.size, support.size)
    sums = sum_by(ids, parts, support.size)
    if not (np.all(parts >= 0.0) and np.all(np.abs(sums - 1.0) <= WHOLE, where=support)):
        raise InvalidInputError(
            "the shares of each token that can be drafted must be probabilities that sum to one"
        )
    return ids, parts


def check_mask(subset: npt.ArrayLike, vocab_size: int) -> Mask:
    """Turn a mask of shape (V,), or a list of token ids, into a mask of shape (V,)."""
    given = as_array(subset, "subset")
    if given.dtype == np.bool_ and given.shape == (vocab_size,):
        return given
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"subset has shape {given.shape} and type {given.dtype}: pass a mask of shape "
            f"({vocab_size},) or a list of token ids"
        )
    mask = np.zeros(vocab_size, dtype=bool)
    if given.size:
        mask[_in_range(given, given.size, vocab_size)] = True
    return mask


def check_names(tokens: npt.ArrayLike, support: Mask, vocab_size: int) -> IntArray:
    """Validate the tokens that are to be renamed 0, 1, ..., over `vocab_size` names.

    Raises
    ------
    InvalidInputError
        If they are no list of different tokens, leave out one that can be drafted, or are more
        than the names.
    TokenOutOfRangeError
        If one lies outside the vocabulary.
    """
    given = as_array(tokens, "tokens")
    if given.ndim != 1 or not given.size:
        raise InvalidInputError(f"tokens has shape {given.shape}: it must be a list of token ids")
    kept = _in_range(given, given.size, support.size)
    if whole_number(vocab_size, "vocab_size") < kept.size:
        raise InvalidInputError(f"vocab_size is {vocab_size}: there are {kept.size} tokens to name")
    check_memory(
        "a distribution over so many tokens",
        8.0 * real_number(vocab_size, "vocab_size"),
        MEMORY_LIMIT,
    )
    named = np.zeros(support.size, dtype=bool)
    named[kept] = True
    if np.count_nonzero(named) != kept.size or (support & ~named).any():
        raise InvalidInputError(
            "tokens must be different, and hold every token that can be drafted"
        )
    return kept


def check_size(rng: np.random.Generator, size: int | None, n: int) -> int:
    """Validate a generator and a number of tuples to draw, of which None means one."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            f"rng is a {type(rng).__name__}: pass a generator, such as np.random.default_rng(0)"
        )
    if size is None:
        return 1
    count = whole_number(size, "size", 0)
    check_memory("drawing so many tuples", 16.0 * real_number(count, "size") * n, MEMORY_LIMIT)
    return count
