"""Probability vectors in float64, from arrays and logits of any precision."""

from __future__ import annotations

from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.checks import FloatArray as FloatArray
from otlp.checks import IntArray as IntArray
from otlp.checks import Mask as Mask
from otlp.checks import as_array, as_floats, own_float_errors, real_number, whole_number
from otlp.errors import InvalidDistributionError, InvalidInputError

# Tolerance of a sum, by bytes per number.  Rounding V = 1e6 probabilities to this precision stays
# within the tolerance; a missing softmax or a dropped token does not.
SUM_TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-6}


class ReadOnly:
    """Base class of objects whose arrays stay read-only, also in copies and pickles."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes of a copy and make its arrays read-only again."""
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.__dict__.update(state)


class ByValue(ReadOnly):
    """Base class of objects that are equal if their type and attributes are equal.

    Comparing and hashing cost O(V) and ignore every `cached_property`.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or _attributes(self) == _attributes(other)

    def __hash__(self) -> int:
        return hash((type(self), *_attributes(self).items()))


def stored(thing: object) -> dict[str, Any]:
    """Return the attributes by name, except the values of cached properties."""
    kind = type(thing)
    return {
        name: value
        for name, value in vars(thing).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def _attributes(thing: object) -> dict[str, Any]:
    """Return the attributes by name, with arrays as their dtype, shape and bytes."""
    return {name: _hashable(value) for name, value in sorted(stored(thing).items())}


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


@own_float_errors
def as_distribution(values: npt.ArrayLike, name: str = "distribution") -> FloatArray:
    """Validate a probability vector and normalise it in float64.

    Parameters
    ----------
    values : array_like, shape (V,)
        Probabilities, in any floating precision (float16, bfloat16, float32, float64); a torch
        tensor may lie on any device and require a gradient.
    name : str
        Name of the vector, for error messages.

    Returns
    -------
    ndarray, shape (V,), float64
        A read-only copy that sums to one.

    Raises
    ------
    InvalidDistributionError
        If the vector is empty or not one-dimensional, has a NaN, infinite or negative entry, or
        if its sum is off by more than 1e-6 (float64), 1e-3 (float32) or 2e-2 (half precision).

    Notes
    -----
    O(V) time.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> otlp.as_distribution([0.25, 0.75]).tolist()
    [0.25, 0.75]
    >>> otlp.as_distribution(np.float16([0.1, 0.9])).sum().item()
    1.0
    """
    given = as_array(values, name, InvalidDistributionError)
    numbers = given if given.dtype == np.float64 else as_floats(given, name)
    if numbers.ndim != 1 or numbers.size == 0:
        raise InvalidDistributionError(
            f"{name} must be a non-empty vector of shape (V,), got shape {numbers.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(numbers))  # Faster than the method `sum`.
    if not (isfinite(total) and np.minimum.reduce(numbers) >= 0.0):
        bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0.0)))
        at = int(bad[0]) if bad.size else int(np.argmax(numbers))
        raise InvalidDistributionError(
            f"{name} must have finite entries >= 0, got {name}[{at}] = {numbers[at]}; use "
            "otlp.softmax for logits"
        )
    dtype = getattr(values, "dtype", given.dtype)
    tolerance = SUM_TOLERANCE.get(getattr(dtype, "itemsize", 8), 1e-6)
    if abs(total - 1.0) > tolerance:
        raise InvalidDistributionError(
            f"{name} must sum to 1 within {tolerance:g} (for {dtype}), got {total:.9g}; divide by "
            "the sum, or use otlp.softmax for logits"
        )
    return frozen(numbers / total)


@own_float_errors
def renormalise_without(distribution: FloatArray, tokens: IntArray) -> FloatArray | None:
    """Set the probability of some tokens to zero and renormalise.

    Parameters
    ----------
    distribution : ndarray, shape (V,)
    tokens : ndarray of int64
        Tokens to remove; may be empty or contain a token twice.

    Returns
    -------
    ndarray, shape (V,), or None
        None if no mass remains.  Exact to rounding also for subnormal masses, whose sum is exact.
    """
    rest = distribution.copy()
    rest[tokens] = 0.0
    total = float(rest.sum())
    if total <= 0.0:
        return None
    rest /= total
    return rest


def entropy(distribution: FloatArray) -> float:
    """Return the entropy in nats."""
    positive = distribution[distribution > 0.0]
    return -float(positive @ np.log(positive))


def logarithms(probabilities: npt.ArrayLike) -> FloatArray:
    """Return natural logarithms; minus infinity for probability 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))


def total_variation(one: FloatArray, other: FloatArray) -> float:
    """Return the total variation distance, half the L1 distance."""
    return 0.5 * float(np.abs(one - other).sum())


def sum_by(index: IntArray, weights: FloatArray, size: int) -> FloatArray:
    """Sum the weights by index: shapes (m,) and (m,) to (size,); O(m + size)."""
    return np.asarray(np.bincount(index, weights=weights, minlength=size), dtype=np.float64)


def invert_cdf(cumulative: FloatArray, uniform: npt.ArrayLike) -> IntArray:
    """Sample by inversion of the cumulative distribution.

    Return the first index whose cumulative mass exceeds ``uniform`` times the total.

    Parameters
    ----------
    cumulative : ndarray, shape (m,)
        Cumulative masses in ascending order; the total may differ from 1.
    uniform : array_like of float in [0, 1)
        Random numbers, any shape.

    Returns
    -------
    ndarray of int64, same shape as `uniform`
        Indices of positive mass; O(log m) per number.
    """
    total = cumulative[-1]
    scaled = np.minimum(np.asarray(uniform) * total, np.nextafter(total, 0.0))
    return np.asarray(np.searchsorted(cumulative, scaled, side="right"), dtype=np.int64)


@own_float_errors
def softmax(logits: npt.ArrayLike, temperature: float = 1.0) -> FloatArray:
    """Turn logits into probabilities, in float64.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        Logits in any floating precision; minus infinity masks a token.
    temperature : float
        Divisor of the logits, greater than 0.

    Returns
    -------
    ndarray, shape (..., V), float64
        Rows that sum to one.

    Raises
    ------
    InvalidInputError
        If the temperature is not a positive and finite number.
    InvalidDistributionError
        If `logits` has no last axis of at least one token, an entry is not a real number, is NaN
        or plus infinity, or all entries of a row are minus infinity.

    Examples
    --------
    >>> import otlp
    >>> otlp.softmax([0.0, 0.0, float("-inf")]).tolist()
    [0.5, 0.5, 0.0]
    >>> otlp.softmax([[1.0, 2.0], [3.0, 3.0]], temperature=0.5).round(3).tolist()
    [[0.119, 0.881], [0.5, 0.5]]
    """
    if not 0.0 < real_number(temperature, "temperature") < np.inf:
        raise InvalidInputError(
            f"temperature must be finite and greater than 0, got {temperature}; for greedy "
            "decoding use a point mass on the arg max"
        )
    scaled = as_floats(logits, "logits")
    if scaled.ndim == 0 or scaled.shape[-1] == 0:
        raise InvalidDistributionError(
            f"logits must have shape (..., V) with V >= 1, got {scaled.shape}"
        )
    peak = scaled.max(axis=-1, keepdims=True)
    if not np.isfinite(peak).all():
        raise InvalidDistributionError(
            "logits must not contain NaN or +inf, and each row must have a finite entry; got "
            f"a row with maximum {peak.ravel()[np.flatnonzero(~np.isfinite(peak))[0]]}"
        )
    # Compute in place, because allocating memory costs more than the arithmetic.
    with np.errstate(over="ignore"):  # Overflow to minus infinity is correct.
        probabilities: FloatArray = scaled - peak
        if temperature != 1.0:
            probabilities /= float(temperature)
    np.exp(probabilities, out=probabilities)
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return probabilities


@own_float_errors
def top_k(probabilities: FloatArray, k: int) -> FloatArray:
    """Keep the k most likely tokens and renormalise; ties go to the lowest token id.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
        A probability vector.
    k : int
        Number of tokens to keep, at least 1; k >= V keeps all tokens.

    Returns
    -------
    ndarray, shape (V,)
        Zero outside the k tokens.

    Raises
    ------
    InvalidInputError
        If k is not an integer >= 1.
    """
    k = whole_number(k, "top-k size")
    probabilities = _vector(probabilities)
    if k >= probabilities.size:
        return probabilities
    least = np.partition(probabilities, -k)[-k]
    above, tied = np.flatnonzero(probabilities > least), np.flatnonzero(probabilities == least)
    return _keep(probabilities, np.append(above, tied[: k - above.size]))


@own_float_errors
def top_p(probabilities: FloatArray, mass: float) -> FloatArray:
    """Keep the smallest set of most likely tokens whose mass reaches `mass`, and renormalise.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
        A probability vector.
    mass : float
        Probability mass to reach, in (0, 1]; ties go to the lowest token id.

    Returns
    -------
    ndarray, shape (V,)
        Zero outside the kept tokens; at least one token is kept.

    Raises
    ------
    InvalidInputError
        If `mass` is not a number in (0, 1].
    """
    check_share(mass, "top-p mass")
    probabilities = _vector(probabilities)
    if mass == 1.0:
        return probabilities
    support = np.flatnonzero(probabilities)
    order = support[np.argsort(-probabilities[support], kind="stable")]
    count = int(np.searchsorted(np.cumsum(probabilities[order]), mass)) + 1
    return _keep(probabilities, order[:count])


@own_float_errors
def min_p(probabilities: FloatArray, share: float) -> FloatArray:
    """Keep the tokens with probability at least `share` times the maximum, and renormalise.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
        A probability vector.
    share : float
        Fraction of the most likely token's probability, in [0, 1].

    Returns
    -------
    ndarray, shape (V,)
        Zero outside the kept tokens; at least one token is kept.

    Raises
    ------
    InvalidInputError
        If `share` is not a number in [0, 1].
    """
    check_share(share, "min-p share", zero=True)
    probabilities = _vector(probabilities)
    if share == 0.0:
        return probabilities
    return _keep(probabilities, np.flatnonzero(probabilities >= share * probabilities.max()))


def check_share(value: float, name: str, zero: bool = False) -> None:
    """Raise InvalidInputError if `value` is not in (0, 1], or in [0, 1] if `zero` is True."""
    share = real_number(value, name)
    if not (0.0 < share <= 1.0 or (zero and share == 0.0)):
        raise InvalidInputError(f"{name} must be in {'[' if zero else '('}0, 1], got {value}")


def _vector(probabilities: FloatArray) -> FloatArray:
    given = as_floats(probabilities, "probabilities")
    with np.errstate(over="ignore", invalid="ignore"):
        valid = given.ndim == 1 and given.size > 0 and 0.0 < given.sum() < np.inf
    if not (valid and given.min() >= 0.0):
        raise InvalidDistributionError(
            "probabilities must be a non-empty vector of shape (V,) with finite entries >= 0, not "
            f"all zero; got shape {given.shape}"
        )
    return given


def _keep(probabilities: FloatArray, tokens: npt.NDArray[np.intp]) -> FloatArray:
    kept = np.zeros_like(probabilities)
    kept[tokens] = probabilities[tokens]
    kept /= kept.sum()
    return kept
