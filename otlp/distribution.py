"""Probability vectors: from arrays and logits of any precision to float64 that sums to one."""

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

# How far a sum may be from one, by bytes a number: rounding V = 1e6 probabilities to that
# precision stays inside, a forgotten softmax or a dropped token does not.
SUM_TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-6}


class ReadOnly:
    """Base of objects whose arrays stay read-only, in copies and pickles too."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the attributes of a copy, whose arrays NumPy makes writeable."""
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.__dict__.update(state)


class ByValue(ReadOnly):
    """Base of objects that are equal where their type and all that they were made of are equal.

    A comparison, and a hash, costs O(V); what is derived later (`cached_property`) does not count.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or _made_of(self) == _made_of(other)

    def __hash__(self) -> int:
        return hash((type(self), *_made_of(self).items()))


def _made_of(thing: object) -> dict[str, Any]:
    """Attributes by name, arrays as their types, shapes and bytes."""
    kind = type(thing)
    return {
        name: _plain(value)
        for name, value in sorted(vars(thing).items())
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def as_distribution(values: npt.ArrayLike, name: str = "distribution") -> FloatArray:
    """Validate a probability vector and normalise it in float64.

    Parameters
    ----------
    values : array_like, shape (V,)
        Probabilities, in any floating precision (float16, bfloat16, float32, float64); a torch
        tensor may lie on any device and require a gradient.
    name : str
        What the vector is called in an error message.

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
            f"{name} must be a non-empty vector of shape (V,), not of shape {numbers.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(numbers))  # as the method, but without its detour
    if not (isfinite(total) and np.minimum.reduce(numbers) >= 0.0):
        bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0.0)))
        at = int(bad[0]) if bad.size else int(np.argmax(numbers))
        raise InvalidDistributionError(
            f"{name}[{at}] is {numbers[at]}: entries must be finite and at least 0 "
            "(for logits use otlp.softmax)"
        )
    dtype = getattr(values, "dtype", given.dtype)
    tolerance = SUM_TOLERANCE.get(getattr(dtype, "itemsize", 8), 1e-6)
    if abs(total - 1.0) > tolerance:
        raise InvalidDistributionError(
            f"{name} sums to {total:.9g}, which is off 1 by more than {tolerance:g} "
            f"(the tolerance for {dtype}): divide by the sum, or use otlp.softmax on logits"
        )
    return frozen(numbers / total)


def renormalise_without(distribution: FloatArray, tokens: IntArray) -> FloatArray | None:
    """Condition a distribution on none of some tokens.

    Parameters
    ----------
    distribution : ndarray, shape (V,)
    tokens : ndarray of int64
        Tokens to leave out; may be empty, or hold a token twice.

    Returns
    -------
    ndarray, shape (V,), or None
        None if nothing is left.  Exact to rounding for subnormal masses too: their sum is exact.
    """
    rest = distribution.copy()
    rest[tokens] = 0.0
    total = float(rest.sum())
    if total <= 0.0:
        return None
    rest /= total
    return rest


def entropy(distribution: FloatArray) -> float:
    """Entropy in nats."""
    positive = distribution[distribution > 0.0]
    return -float(positive @ np.log(positive))


def total_variation(one: FloatArray, other: FloatArray) -> float:
    """Half the L1 distance: the largest difference in the probability of any event."""
    return 0.5 * float(np.abs(one - other).sum())


def sum_by(index: IntArray, weights: FloatArray, size: int) -> FloatArray:
    """Sum the weights that share an index: shape (m,) and (m,) to (size,); O(m + size)."""
    return np.asarray(np.bincount(index, weights=weights, minlength=size), dtype=np.float64)


def invert_cdf(cumulative: FloatArray, uniform: npt.ArrayLike) -> IntArray:
    """Sample by inversion: the first index whose cumulative mass exceeds ``uniform`` of the total.

    Parameters
    ----------
    cumulative : ndarray, shape (m,)
        Cumulative masses, ascending; the total need not be 1.
    uniform : array_like of float in [0, 1)
        Random numbers, any shape.

    Returns
    -------
    ndarray of int64, the shape of `uniform`
        Never an index of mass zero; O(log m) each.
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
        Divides the logits; greater than 0.

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
        or plus infinity, or a row is minus infinity throughout.

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
            f"temperature is {temperature}: it must be finite and greater than 0 "
            "(for greedy decoding use a point mass on the arg max)"
        )
    scaled = as_floats(logits, "logits")
    if scaled.ndim == 0 or scaled.shape[-1] == 0:
        raise InvalidDistributionError(
            f"logits has shape {scaled.shape}: it must be (..., V) with V of at least 1"
        )
    peak = scaled.max(axis=-1, keepdims=True)
    if not np.isfinite(peak).all():
        raise InvalidDistributionError(
            "logits must not hold NaN or +inf, nor a row of -inf throughout: "
            f"the largest entry of a row is {peak.ravel()[np.flatnonzero(~np.isfinite(peak))[0]]}"
        )
    # in place: fresh memory costs more than the arithmetic
    with np.errstate(over="ignore"):  # to minus infinity, where it belongs
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
        How many tokens to keep, at least 1; k >= V keeps all.

    Returns
    -------
    ndarray, shape (V,)
        Zero outside the k tokens.

    Raises
    ------
    InvalidInputError
        If k is not a whole number of at least 1.
    """
    k = whole_number(k, "top-k size")
    probabilities = _vector(probabilities)
    if k >= probabilities.size:
        return probabilities
    order = np.argsort(-probabilities, kind="stable")
    return _keep(probabilities, order[:k])


@own_float_errors
def top_p(probabilities: FloatArray, mass: float) -> FloatArray:
    """Keep the smallest set of most likely tokens whose mass reaches `mass`, and renormalise.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
        A probability vector.
    mass : float
        The mass to reach, in (0, 1]; ties go to the lowest token id.

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
    order = np.argsort(-probabilities, kind="stable")
    count = int(np.searchsorted(np.cumsum(probabilities[order]), mass)) + 1
    return _keep(probabilities, order[:count])


@own_float_errors
def min_p(probabilities: FloatArray, share: float) -> FloatArray:
    """Keep the tokens that are at least so likely in units of the likeliest, and renormalise.

    Parameters
    ----------
    probabilities : ndarray, shape (V,)
        A probability vector.
    share : float
        Of the likeliest token's probability, in [0, 1].

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


def check_share(value: float, what: str, zero: bool = False) -> None:
    """Raise `InvalidInputError` unless a value is in (0, 1], or in [0, 1]."""
    share = real_number(value, what)
    if not (0.0 < share <= 1.0 or (zero and share == 0.0)):
        raise InvalidInputError(f"{what} is {value}: it must be in {'[' if zero else '('}0, 1]")


def _vector(probabilities: FloatArray) -> FloatArray:
    if type(probabilities) is np.ndarray and probabilities.dtype == np.float64:
        given = probabilities
    else:
        given = as_floats(probabilities, "probabilities")
    with np.errstate(over="ignore", invalid="ignore"):
        valid = given.ndim == 1 and given.size > 0 and 0.0 < given.sum() < np.inf
    if not (valid and given.min() >= 0.0):
        raise InvalidDistributionError(
            f"probabilities has shape {given.shape}: it must be a non-empty vector of shape (V,) "
            "of finite numbers of at least 0, not all zero"
        )
    return given


def _keep(probabilities: FloatArray, tokens: npt.NDArray[np.intp]) -> FloatArray:
    kept = np.zeros_like(probabilities)
    kept[tokens] = probabilities[tokens]
    kept /= kept.sum()
    return kept
