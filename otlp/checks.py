"""Arguments are of the documented types and within the documented limits, or an error says why not.

One function a kind of argument, for all packages; commands check theirs in ``otlp/cli/options.py``,
tensors of many rows are looked at where they lie, in ``otlp/batched``.  What is raised is an
`InvalidInputError`, or derives from it, unless a function says otherwise.
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

from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    SizeLimitError,
    TokenOutOfRangeError,
    fits,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MEMORY_LIMIT = 2 * 1024**3
"""Bytes that an enumeration may need before it is refused."""

MOST_DRAFTED = 10_000
"""Most drafts of a scheme: what a scheme answers takes time in proportion to them."""

SHORT = 64
"""Lists of ids up to this length are looked through without NumPy."""

LARGEST = sys.float_info.max
NO_TOKENS = np.empty(0, dtype=np.int64)

# The floating types of torch that NumPy has too.
_NUMPY_HAS = ("float16", "float32", "float64")


P = ParamSpec("P")
R = TypeVar("R")


def own_float_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function compute as NumPy does by default, whatever its caller's `np.errstate` is.

    Probabilities underflow to 0 as they should; what the caller has set is no input.
    """

    @wraps(function)
    def own(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return function(*args, **kwargs)

    return own


def precision(values: Any) -> str:
    """Name of the type of an array's or tensor's numbers, such as ``"bfloat16"``; "" for a list."""
    return str(getattr(values, "dtype", "")).removeprefix("torch.")


def as_array(
    values: Any, name: str, error: type[InvalidInputError] = InvalidInputError
) -> npt.NDArray[Any]:
    """Turn what is like an array into a NumPy array of the same numbers.

    Parameters
    ----------
    values : array_like or torch.Tensor
        Tensors may lie on any device, and may require a gradient, which is dropped.  Those whose
        type NumPy lacks, such as bfloat16, become float32, which can hold them.
    name : str
        What it is called in an error message.
    error : type
        What to raise.

    Raises
    ------
    InvalidInputError
        If it is a masked array, or nothing like an array.
    """
    if type(values) is np.ndarray:
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise error(
            f"{name} is a masked array: pass its data, with what is masked filled in "
            "(values.filled(0.0))"
        )
    try:
        if hasattr(values, "detach") and hasattr(values, "numpy"):
            tensor = values.detach()
            if tensor.is_floating_point() and precision(tensor) not in _NUMPY_HAS:
                tensor = tensor.float()
            return np.asarray(tensor.numpy(force=True))
        if isinstance(values, list | tuple) and any(hasattr(item, "detach") for item in values):
            values = [as_array(item, name, error) for item in values]
        return np.asarray(values)
    except InvalidInputError:
        raise
    except Exception as cause:  # whatever a foreign type's own conversion raises
        raise error(f"{name} cannot be turned into an array: {cause}") from None


def as_floats(values: Any, name: str) -> FloatArray:
    """Turn what is like an array of real numbers into a float64 array, or keep it if it is one.

    Parameters
    ----------
    values : array_like or torch.Tensor
        Of integers or of floating numbers of any precision, on any device; see `as_array`.
    name : str
        What it is called in an error message.

    Raises
    ------
    InvalidDistributionError
        If it is no array of real numbers: complex, masked, ragged, of strings or of None.
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
        f"{name} must hold real numbers, not {given.dtype}"
        + (": for complex numbers pass the real part" if given.dtype.kind == "c" else "")
    )


def whole_number(value: Any, what: str, least: int = 1) -> int:
    """Validate a whole number of at least `least`.

    Raises
    ------
    InvalidInputError
        Naming `what`, the value and the limit.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(
            f"{what} is {reprlib.repr(value)}: it must be a whole number >= {least}"
        )
    return int(value)


def real_number(value: Any, what: str) -> float:
    """Validate a real number, of whatever size; infinite beyond the range of floats.

    Raises
    ------
    InvalidInputError
        Naming `what` and the value.
    """
    try:
        if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
            return float(value)
    except OverflowError:
        return np.inf
    raise InvalidInputError(f"{what} is {reprlib.repr(value)}: it must be a number")


def check_generator(rng: Any) -> None:
    """Refuse what draws no random numbers."""
    if not callable(getattr(rng, "random", None)):
        raise _no_generator(rng)


def _no_generator(rng: object) -> InvalidInputError:
    return InvalidInputError(
        f"rng is a {type(rng).__name__}: pass a generator, such as np.random.default_rng(0)"
    )


def kind_of(value: object) -> str:
    """What a value is, for a message: "a list", or "the class IID"."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def is_a(value: Any, kind: type, what: str) -> None:
    """Refuse a value that is no instance of a class.

    Raises
    ------
    InvalidInputError
        Naming the argument, its value and the class.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{what} is {value!r:.60}: it must be a {kind.__name__}")


def number(value: Any, what: str, least: float, most: float = np.inf) -> float:
    """Check a finite real number in [least, most]."""
    upper = "" if most == np.inf else f" and at most {most:g}"
    must = f"be a finite number of at least {least:g}{upper}"
    check_number(what, value, lambda x: isfinite(real_number(x, what)) and least <= x <= most, must)
    return float(value)


def real_array(values: npt.ArrayLike, what: str, axes: int) -> npt.NDArray[np.floating]:
    """Check an array or tensor of real numbers with so many axes."""
    rows = as_array(values, what)
    if rows.ndim != axes or rows.dtype.kind not in "fiu" or not rows.size:
        raise InvalidInputError(
            f"{what} has shape {rows.shape} and type {rows.dtype}: it must hold real numbers "
            f"along {axes} {'axis' if axes == 1 else 'axes'}"
        )
    return rows


def token_ids(values: Any, what: str, size: int) -> IntArray:
    """Check token ids in [0, size), shape (T,), possibly none."""
    tokens = as_array(values, what)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{what} is {values!r:.60}: it must be a list of whole numbers, one for each token"
        )
    odd = tokens[(tokens < 0) | (tokens >= size)] if tokens.size else tokens
    if odd.size:
        raise InvalidInputError(f"{what} holds token {int(odd[0])}: tokens are in [0, {size})")
    return tokens.astype(np.int64)


def check_choice(option: str, value: object, known: Collection[str]) -> None:
    """Refuse what is not among the known names, and suggest the nearest."""
    if not (isinstance(value, str) and value in known):
        raise InvalidInputError(f"{option} is {value!r}: {nearest(value, known)}")


def nearest(value: object, known: Collection[str]) -> str:
    """Say which names are known, and before them which of them might be meant."""
    near = get_close_matches(str(value), known, n=1, cutoff=0.4)
    return (f"did you mean {near[0]!r}? " if near else "") + f"known: {', '.join(known)}"


def check_number(option: str, value: object, valid: Callable[[float], bool], must: str) -> None:
    """Refuse what is no real number, or none that is valid.

    Raises
    ------
    InvalidInputError
        "<option> is <value>: it must <must>".
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InvalidInputError(
            f"{option} is a whole number beyond {sys.float_info.max:g}: it must {must}"
        )
    if not (number and valid(value)):  # type: ignore[arg-type]
        raise InvalidInputError(f"{option} is {value!r:.60}: it must {must}")


def check_memory_limit(value: object) -> None:
    """Refuse a memory limit that is not a positive number of bytes."""
    check_number("memory_limit", value, lambda size: size > 0, "be a positive number of bytes")


def check_time_limit(value: object) -> None:
    """Refuse a time limit that is neither None nor a positive number of seconds."""
    if value is not None:
        must = "be a positive number of seconds, or None"
        check_number("time_limit", value, lambda seconds: seconds > 0.0, must)


def check_memory(what: str, needed: float, limit: float) -> None:
    """Refuse an enumeration that would need more bytes than `limit`.

    Raises
    ------
    SizeLimitError
        Naming the bytes needed, the limit, and what to do.
    InvalidInputError
        If the limit is not a number.
    """
    if not isinstance(limit, Real) or isinstance(limit, bool) or limit != limit:
        raise InvalidInputError(f"memory_limit is {limit!r}: it must be a number of bytes")
    if not needed <= limit:
        raise SizeLimitError(fits(what, needed, limit).reason)


def check_n(n: int) -> int:
    """Validate the number of drafts."""
    if whole_number(n, "n") > MOST_DRAFTED:
        raise InvalidInputError(f"n is {n}: the number of drafts must be at most {MOST_DRAFTED:,}")
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
    return _in_range(tokens, tokens.size, vocab_size) if tokens.size else NO_TOKENS


def _misshaped(tokens: npt.NDArray[Any], n: int) -> InvalidInputError:
    return InvalidInputError(
        f"draft_tokens has shape {tokens.shape} and type {tokens.dtype}: "
        f"it must hold n = {n} integer token ids"
    )


def _in_range(tokens: npt.NDArray[Any], n: int, vocab_size: int) -> IntArray:
    if tokens.dtype.kind not in "iu":
        raise _misshaped(tokens, n)
    if tokens.ndim == 1 and 0 < tokens.size <= SHORT:
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


def check_mask(subset: npt.ArrayLike, vocab_size: int) -> Mask:
    """Turn a mask of shape (V,), or a list of token ids, into a mask of shape (V,)."""
    given = subset if type(subset) is np.ndarray else as_array(subset, "subset")
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
        raise _no_generator(rng)
    if size is None:
        return 1
    count = whole_number(size, "size", 0)
    check_memory("drawing so many tuples", 16.0 * real_number(count, "size") * n, MEMORY_LIMIT)
    return count
