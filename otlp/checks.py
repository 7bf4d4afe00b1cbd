"""Validation of arguments: types, shapes and ranges.

All packages use these functions.  Command-line options are checked in ``otlp/cli/options.py`` and
tensors on a device in ``otlp/batched/checks.py``.  Unless its docstring says otherwise, a function
raises `InvalidInputError` or a subclass of it.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from math import isfinite
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from otlp.capability import fits
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    SizeLimitError,
    TokenOutOfRangeError,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MEMORY_LIMIT = 2 * 1024**3
"""Default memory limit of an enumeration, in bytes."""

MAX_DRAFTS = 10_000
"""Maximum number of drafts of a scheme; the cost of a scheme's methods is proportional to it."""

SHORT = 64
"""Maximum length of a list of token ids that is checked with Python's own `min` and `max`."""

LARGEST = sys.float_info.max
NO_TOKENS = np.empty(0, dtype=np.int64)

# Floating types of torch that NumPy also has.
_NUMPY_FLOATS = ("float16", "float32", "float64")


P = ParamSpec("P")
R = TypeVar("R")


def own_float_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run under fixed floating-point error handling.

    The caller's `np.errstate` has no effect on the function.  Underflow is ignored, because
    probabilities may underflow to 0; other errors warn.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return function(*args, **kwargs)

    return wrapper


def precision(values: Any) -> str:
    """Return the dtype name of an array or tensor, such as ``"bfloat16"``; "" for a list."""
    return str(getattr(values, "dtype", "")).removeprefix("torch.")


def as_array(
    values: Any, name: str, error: type[InvalidInputError] = InvalidInputError
) -> npt.NDArray[Any]:
    """Convert an array_like or a tensor to a NumPy array.

    Parameters
    ----------
    values : array_like or torch.Tensor
        A tensor may be on any device and may require a gradient, which is dropped.  Floating
        types that NumPy does not have, such as bfloat16, are converted to float32.
    name : str
        Name of the argument, for error messages.
    error : type
        Exception type to raise.

    Raises
    ------
    InvalidInputError
        If `values` is a masked array or cannot be converted to an array.
    """
    if type(values) is np.ndarray:
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise error(
            f"{name} must be an array without a mask, got a masked array; pass the filled data, "
            "such as values.filled(0.0)"
        )
    try:
        if hasattr(values, "detach") and hasattr(values, "numpy"):
            tensor = values.detach()
            if tensor.is_floating_point() and precision(tensor) not in _NUMPY_FLOATS:
                tensor = tensor.float()
            return np.asarray(tensor.numpy(force=True))
        if isinstance(values, list | tuple) and any(hasattr(item, "detach") for item in values):
            values = [as_array(item, name, error) for item in values]
        return np.asarray(values)
    except InvalidInputError:
        raise
    except Exception as cause:  # The conversion of a foreign type can raise anything.
        raise error(f"{name} cannot be converted to an array: {cause}") from None


def as_floats(values: Any, name: str) -> FloatArray:
    """Convert an array_like of real numbers to a float64 array; a float64 array is not copied.

    Parameters
    ----------
    values : array_like or torch.Tensor
        Integers or floating-point numbers of any precision, on any device; see `as_array`.
    name : str
        Name of the argument, for error messages.

    Raises
    ------
    InvalidDistributionError
        If `values` is complex, masked or ragged, or contains strings or None.
    """
    given = as_array(values, name, InvalidDistributionError)
    if given.dtype == np.float64:
        return given
    numbers = given.dtype.kind in "biufV" and given.dtype.names is None
    if numbers or (given.dtype == object and all(isinstance(x, Real) for x in given.flat)):
        try:
            with np.errstate(all="ignore"):
                return given.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidDistributionError(
        f"{name} must contain real numbers, got {given.dtype}"
        + ("; pass the real part" if given.dtype.kind == "c" else "")
    )


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """Validate an integer >= `least`.

    Raises
    ------
    InvalidInputError
        If the check fails; the message contains `name`, the value and the limit.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(f"{name} must be an integer >= {least}, got {reprlib.repr(value)}")
    return int(value)


def real_number(value: Any, name: str) -> float:
    """Convert a real number to a float; return infinity for integers beyond the float range.

    Raises
    ------
    InvalidInputError
        If `value` is not a real number; the message contains `name` and the value.
    """
    try:
        if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
            return float(value)
    except OverflowError:
        return np.inf
    raise InvalidInputError(f"{name} must be a number, got {reprlib.repr(value)}")


def check_generator(rng: Any) -> None:
    """Raise InvalidInputError if `rng` has no method `random`."""
    if not callable(getattr(rng, "random", None)):
        raise _generator_error(rng)


def _generator_error(rng: object) -> InvalidInputError:
    return InvalidInputError(
        "rng must be a random generator, such as np.random.default_rng(0); "
        f"got {type(rng).__name__}"
    )


def kind_of(value: object) -> str:
    """Describe a value for an error message: "list", or "the class IID"."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def is_a(value: Any, kind: type, name: str) -> None:
    """Check that `value` is an instance of `kind`.

    Raises
    ------
    InvalidInputError
        If the check fails; the message contains `name`, the value and the class.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} must be a {kind.__name__}, got {value!r:.60}")


def number(value: Any, name: str, least: float, most: float = np.inf) -> float:
    """Validate a finite real number in [least, most]."""
    limits = f">= {least:g}" if most == np.inf else f"in [{least:g}, {most:g}]"
    must = f"be a finite number {limits}"
    check_number(name, value, lambda x: isfinite(real_number(x, name)) and least <= x <= most, must)
    return float(value)


def real_array(values: npt.ArrayLike, name: str, axes: int) -> npt.NDArray[np.floating]:
    """Convert to a non-empty array of real numbers with `axes` dimensions."""
    rows = as_array(values, name)
    if rows.ndim != axes or rows.dtype.kind not in "fiu" or not rows.size:
        raise InvalidInputError(
            f"{name} must be a non-empty {axes}-D array of real numbers, "
            f"got shape {rows.shape} and dtype {rows.dtype}"
        )
    return rows


def token_ids(values: Any, name: str, size: int) -> IntArray:
    """Validate token ids in [0, size), shape (T,); T may be 0."""
    tokens = as_array(values, name)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise InvalidInputError(f"{name} must be a list of integer token ids, got {values!r:.60}")
    odd = tokens[(tokens < 0) | (tokens >= size)] if tokens.size else tokens
    if odd.size:
        raise InvalidInputError(f"{name} must hold token ids in [0, {size}), got {int(odd[0])}")
    return tokens.astype(np.int64)


def check_choice(option: str, value: object, known: Collection[str]) -> None:
    """Raise InvalidInputError if `value` is not one of the known names; suggest the nearest."""
    if not (isinstance(value, str) and value in known):
        message = f"{option} must be one of {', '.join(known)}, got {value!r}; "
        raise InvalidInputError((message + _did_you_mean(value, known)).rstrip("; "))


def nearest(value: object, known: Collection[str]) -> str:
    """Return the end of an error message: the most similar known name, and all known names."""
    return f"{_did_you_mean(value, known)} known: {', '.join(known)}".lstrip()


def _did_you_mean(value: object, known: Collection[str]) -> str:
    near = get_close_matches(str(value), known, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else ""


def check_number(option: str, value: object, valid: Callable[[float], bool], must: str) -> None:
    """Check that `value` is a real number for which `valid` returns True.

    Raises
    ------
    InvalidInputError
        "<option> must <must>, got <value>".
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InvalidInputError(
            f"{option} must {must}, got an integer beyond +-{sys.float_info.max:g}"
        )
    if not (number and valid(value)):  # type: ignore[arg-type]
        raise InvalidInputError(f"{option} must {must}, got {value!r:.60}")


def check_memory_limit(value: object) -> None:
    """Raise InvalidInputError if the memory limit is not a positive number of bytes."""
    check_number("memory_limit", value, lambda size: size > 0, "be a positive number of bytes")


def check_time_limit(value: object) -> None:
    """Raise InvalidInputError unless the limit is None or a positive number of seconds."""
    if value is not None:
        must = "be a positive number of seconds, or None"
        check_number("time_limit", value, lambda seconds: seconds > 0.0, must)


def check_memory(what: str, needed: float, limit: float) -> None:
    """Check that an enumeration needs at most `limit` bytes.

    Raises
    ------
    SizeLimitError
        If it needs more; the message contains the memory needed, the limit and alternatives.
    InvalidInputError
        If the limit is not a number.
    """
    if not isinstance(limit, Real) or isinstance(limit, bool) or limit != limit:
        raise InvalidInputError(f"memory_limit must be a number of bytes, got {limit!r}")
    if not needed <= limit:
        raise SizeLimitError(fits(what, needed, limit).reason)


def check_n(n: int) -> int:
    """Validate the number of drafts."""
    if whole_number(n, "n") > MAX_DRAFTS:
        raise InvalidInputError(f"n, the number of drafts, must be at most {MAX_DRAFTS:,}, got {n}")
    return int(n)


def check_tuples(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate drafted tuples, shape (..., n).

    Raises
    ------
    InvalidInputError
        If the last axis does not have length n, or the entries are not integers.
    TokenOutOfRangeError
        If an id lies outside [0, V).
    """
    tokens = as_array(draft_tokens, "draft_tokens")
    if tokens.ndim == 0 or tokens.shape[-1] != n:
        raise _shape_error(tokens, n)
    return _in_range(tokens, n, vocab_size)


def check_tokens(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate one drafted tuple, shape (n,); see `check_tuples`."""
    tokens = as_array(draft_tokens, "draft_tokens")
    if tokens.shape != (n,):
        raise _shape_error(tokens, n)
    return _in_range(tokens, n, vocab_size)


def check_rows(draft_tokens: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate a batch of drafted tuples, shape (m, n); see `check_tuples`."""
    tokens = check_tuples(draft_tokens, n, vocab_size)
    if tokens.ndim != 2:
        raise InvalidInputError(
            f"draft_tokens must have shape (m, {n}), one tuple per row, got {tokens.shape}"
        )
    return tokens


def check_drawn(drawn: npt.ArrayLike, n: int, vocab_size: int) -> IntArray:
    """Validate the tokens drafted before the next draft, shape (m,), m < n."""
    tokens = as_array(drawn, "drawn")
    if tokens.ndim != 1 or tokens.size >= n:
        raise InvalidInputError(
            f"drawn must hold fewer tokens than the n = {n} drafts, got shape {tokens.shape}"
        )
    return _in_range(tokens, tokens.size, vocab_size) if tokens.size else NO_TOKENS


def _shape_error(tokens: npt.NDArray[Any], n: int) -> InvalidInputError:
    return InvalidInputError(
        f"draft_tokens must hold n = {n} integer token ids, "
        f"got shape {tokens.shape} and dtype {tokens.dtype}"
    )


def _in_range(tokens: npt.NDArray[Any], n: int, vocab_size: int) -> IntArray:
    if tokens.dtype.kind not in "iu":
        raise _shape_error(tokens, n)
    if tokens.ndim == 1 and 0 < tokens.size <= SHORT:
        ids = tokens.tolist()  # Python's min and max are faster than NumPy's for short lists.
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


def check_mask(subset: npt.ArrayLike, vocab_size: int) -> Mask:
    """Convert a mask of shape (V,) or a list of token ids to a mask of shape (V,)."""
    given = subset if type(subset) is np.ndarray else as_array(subset, "subset")
    if given.dtype == np.bool_ and given.shape == (vocab_size,):
        return given
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"subset must be a mask of shape ({vocab_size},) or a list of token ids, "
            f"got shape {given.shape} and dtype {given.dtype}"
        )
    mask = np.zeros(vocab_size, dtype=bool)
    if given.size:
        mask[_in_range(given, given.size, vocab_size)] = True
    return mask


def check_names(tokens: npt.ArrayLike, support: Mask, vocab_size: int) -> IntArray:
    """Validate a list of tokens to renumber 0, 1, ... in a vocabulary of size `vocab_size`.

    Raises
    ------
    InvalidInputError
        If the tokens are not a list of distinct token ids, do not include every token that can be
        drafted, or are more than `vocab_size`.
    TokenOutOfRangeError
        If a token id lies outside the vocabulary.
    """
    given = as_array(tokens, "tokens")
    if given.ndim != 1 or not given.size:
        raise InvalidInputError(f"tokens must be a list of token ids, got shape {given.shape}")
    kept = _in_range(given, given.size, support.size)
    if whole_number(vocab_size, "vocab_size") < kept.size:
        raise InvalidInputError(
            f"vocab_size must be at least the number of tokens {kept.size}, got {vocab_size}"
        )
    needed = 8.0 * real_number(vocab_size, "vocab_size")
    check_memory("a distribution over vocab_size tokens", needed, MEMORY_LIMIT)
    named = np.zeros(support.size, dtype=bool)
    named[kept] = True
    if np.count_nonzero(named) != kept.size or (support & ~named).any():
        raise InvalidInputError(
            "tokens must be distinct and include every token that can be drafted"
        )
    return kept


def check_size(rng: np.random.Generator, size: int | None, n: int) -> int:
    """Validate a generator and a number of tuples to draw; None means 1."""
    if not isinstance(rng, np.random.Generator):
        raise _generator_error(rng)
    if size is None:
        return 1
    count = whole_number(size, "size", 0)
    check_memory("drawing `size` tuples", 16.0 * real_number(count, "size") * n, MEMORY_LIMIT)
    return count
