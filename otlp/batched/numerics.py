"""Shared formulas on float64 tensors, with sums of positive terms and fixed shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

TINY = 1e-300
"""Lower clamp of denominators, so that 0 / 0 is not NaN."""

WHOLE = 1e-10
"""Largest deviation from 1 of a weight w that counts as w = 1 (no token is clipped)."""

SECTIONS, SECTION_STEPS = 32, 9
"""Number of points per round and number of rounds in `bracket`."""

ROOT_STEPS = 26
"""Number of function evaluations in `rising_root`."""

ROOT_TOLERANCE = 1e-13
"""Absolute function value at which `rising_root` stops early."""


def integer_power(base: Tensor, exponent: Tensor, max_n: int) -> Tensor:
    """Compute ``base ** exponent`` by products, for int64 exponents (B, 1) from 0 to `max_n`.

    Products do not depend on the position of an element in a vector; logarithms may.
    """
    found = torch.where(exponent & 1 > 0, base, 1.0)
    for bit in range(1, max_n.bit_length()):
        base = base * base
        found = torch.where(exponent >> bit & 1 > 0, found * base, found)
    return found


def before(prefix: Tensor, index: Tensor) -> Tensor:
    """Return an inclusive prefix sum (B, M) just before `index` (B, ...); 0 at index 0."""
    return prefix.gather(1, (index - 1).clamp(min=0)).masked_fill(index == 0, 0)


def random_integer(uniform: Tensor, total: Tensor) -> Tensor:
    """Convert uniform numbers in [0, 1) to uniform integers in [0, total), int64."""
    # Rounding can reach the total; clamp so that the integer stays in range.
    return torch.minimum((uniform * total).long(), total - 1)


def draw_index(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw m indices per row by inversion of the prefix sums of the weights.

    Parameters
    ----------
    weights : Tensor, shape (B, M), float64
        Nonnegative weights; the sum need not be 1.
    uniform : Tensor, shape (B, m), float64
        Uniform random numbers in [0, 1).

    Returns
    -------
    Tensor, shape (B, m), int64
        Indices.  An index of weight 0 is returned only if all weights of the row are 0.
    """
    index, _ = invert(weights.cumsum(1), uniform)
    if weights.device.type != "cpu":
        # Prefix sums computed in parallel may rise by rounding where a weight is 0.
        heaviest = weights.argmax(1, keepdim=True)
        index = torch.where(weights.gather(1, index) > 0, index, heaviest)
    return index


def invert(cumulative: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices where prefix sums (B, M) exceed `uniform` (B, m) times the total."""
    total = cumulative[:, -1:]
    # Rounding can reach the total; clamp so that searchsorted stays in range.
    level = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, level, right=True)
    return index.clamp(max=cumulative.shape[1] - 1), level


def mean_of_powers(left: Tensor, right: Tensor, max_n: int, n: Tensor | None = None) -> Tensor:
    """Return the mean of n u^(n-1) over [a, b], (b^n - a^n) / (b - a), without cancellation.

    Parameters
    ----------
    left, right : Tensor
        a and b of equal shape, 0 <= a <= b.
    max_n : int
        Largest n.
    n : Tensor, optional
        n of each row, 1 to `max_n`; default `max_n`.

    Returns
    -------
    Tensor
        Sum of a^i b^(n-1-i) over i < n.
    """
    mean, left_power = torch.ones_like(left), left
    for degree in range(1, max_n):
        longer = mean * right + left_power
        mean = longer if n is None else torch.where(degree < n, longer, mean)
        left_power = left_power * left
    return mean


def inclusion_probability(mass: Tensor, n: Tensor) -> Tensor:
    """Return the probability 1 - (1 - q)^n that one of n i.i.d. drafts has mass q.

    The result is accurate for small q.
    """
    return -torch.expm1(n * torch.log1p(-mass.clamp(max=1.0)))


def bracket(short: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Bracket the point between a and b where a condition ceases to hold; two tensors (B, 1).

    Parameters
    ----------
    short : callable
        The condition: maps points (B, m) to a mask, True before the point.
    a, b : Tensor, shape (B, 1)
    """
    grid = torch.linspace(0.0, 1.0, SECTIONS + 1, dtype=a.dtype, device=a.device)
    for _ in range(SECTION_STEPS):
        points = a + (b - a) * grid
        count = short(points[:, 1:-1]).sum(1, keepdim=True)
        a, b = points.gather(1, count), points.gather(1, count + 1)
    return a, b


def between_breakpoints(
    excess: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, breakpoints: Tensor
) -> tuple[Tensor, Tensor]:
    """Narrow the bracket of the root of a rising function to two neighbouring breakpoints.

    Parameters
    ----------
    excess : callable
        The rising function, of points (B, 1).
    a, b : Tensor, shape (B, 1)
    breakpoints : Tensor, shape (B, M)
        Ascending points where the slope may jump, the first at most a.  Regula falsi converges
        slowly across a breakpoint.
    """
    steps = (breakpoints.shape[1] - 1).bit_length()
    spare = 2**steps + 1 - breakpoints.shape[1]
    points = pad(breakpoints, (0, spare), value=torch.inf).minimum(b).maximum(a)
    low = torch.zeros_like(a, dtype=torch.long)
    high = low + 2**steps
    for _ in range(steps):
        middle = (low + high) // 2
        short = excess(points.gather(1, middle)) < 0
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return points.gather(1, low), points.gather(1, high)


def rising_root(excess: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Return the root of a rising function between a and b, shape (B, 1).

    Regula falsi (Anderson and Bjoerck), with a bisection whenever three steps have not halved the
    bracket.  Uses `ROOT_STEPS` evaluations, or fewer on a CPU, where reading values does not wait.
    A converged row stays fixed, because on a flat function another step could move far.
    """
    stops_early = a.device.type == "cpu" and not torch.compiler.is_compiling()
    low, high = excess(a), excess(b)
    previous, width = torch.zeros_like(a), b - a
    for step in range(1, ROOT_STEPS):
        chord = (a * high - b * low) / (high - low).clamp(min=TINY)
        bisect = ~((chord >= a) & (chord <= b))
        if step % 3 == 0:
            bisect, width = bisect | (b - a > 0.5 * width), b - a
        u = torch.where(bisect, 0.5 * (a + b), chord)
        if step == ROOT_STEPS - 1:
            break
        value = excess(u)
        if stops_early and bool((value.abs() <= ROOT_TOLERANCE).all()):
            break
        short = value < 0
        # Reduce the value at an end that is kept twice; otherwise the chord converges slowly.
        damp = 1.0 - value / torch.where(short, low, high)
        damp = torch.where(damp > 0, damp, 0.5)
        damp = torch.where(value.sign() == previous, damp, 1.0)
        previous = value.sign()
        low, high = torch.where(short, value, damp * low), torch.where(short, damp * high, value)
        a, b = torch.where(short, u, a), torch.where(short, b, u)
        converged = value.abs() <= ROOT_TOLERANCE
        low, high = low.masked_fill(converged, 0.0), high.masked_fill(converged, 0.0)
        a, b = torch.where(converged, u, a), torch.where(converged, u, b)
    return u
