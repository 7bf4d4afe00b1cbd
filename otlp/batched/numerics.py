"""Formulas on tensors that several files share: float64, sums of positive terms, shapes fixed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

TINY = 1e-300
"""Keeps 0 / 0 from being NaN."""

WHOLE = 1e-10
"""How near the wanted masses must come to one for no token to be clipped."""

SECTIONS, SECTION_STEPS = 32, 9
"""Points and rounds of a search that evaluates many points at once."""

ROOT_STEPS = 26
"""Evaluations in a search that evaluates one point at a time."""

SETTLED = 1e-13
"""How near to 0 is near enough, where a search may end early."""


def integer_power(base: Tensor, exponent: Tensor, most: int) -> Tensor:
    """``base ** exponent`` by products alone, for exponents (B, 1), int64, within 0 to `most`.

    Products are the same wherever an element stands, which logarithms in vectors need not be.
    """
    found = torch.where(exponent & 1 > 0, base, 1.0)
    for bit in range(1, most.bit_length()):
        base = base * base
        found = torch.where(exponent >> bit & 1 > 0, found * base, found)
    return found


def before(prefix: Tensor, index: Tensor) -> Tensor:
    """Read an inclusive prefix sum (B, M) just before `index` (B, ...); 0 at index 0."""
    return prefix.gather(1, (index - 1).clamp(min=0)).masked_fill(index == 0, 0)


def share(uniform: Tensor, total: Tensor) -> Tensor:
    """Integers uniform in [0, total), from numbers in [0, 1) and totals in int64."""
    # rounding up to the total would find no index
    return torch.minimum((uniform * total).long(), total - 1)


def draw_index(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw indices of rows by inversion of the weights' prefix sums.

    Parameters
    ----------
    weights : Tensor, shape (B, M), float64
        Nonnegative; the sum need not be 1.
    uniform : Tensor, shape (B, m), float64
        In [0, 1).

    Returns
    -------
    Tensor, shape (B, m), int64
        Never one of weight 0, but where a row has no weight at all.
    """
    index, _ = invert(weights.cumsum(1), uniform)
    if weights.device.type != "cpu":
        # prefix sums worked out in parallel may rise by rounding where a weight is 0
        heaviest = weights.argmax(1, keepdim=True)
        index = torch.where(weights.gather(1, index) > 0, index, heaviest)
    return index


def invert(cumulative: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Find where inclusive prefix sums (B, M) exceed levels uniform (B, m) in [0, total)."""
    total = cumulative[:, -1:]
    # rounding up to the total would find no index
    level = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, level, right=True)
    return index.clamp(max=cumulative.shape[1] - 1), level


def mean_of_powers(left: Tensor, right: Tensor, most: int, n: Tensor | None = None) -> Tensor:
    """Mean of n u^(n-1) over [a, b]: (b^n - a^n) / (b - a) without cancellation, 0 <= a <= b.

    Parameters
    ----------
    left, right : Tensor
        a and b, of one shape.
    most : int
        The largest n.
    n : Tensor, optional
        Each row's own, 1 to `most`; `most` for all by default.

    Returns
    -------
    Tensor
        The sum of a^i b^(n-1-i) over i < n.
    """
    mean, left_power = torch.ones_like(left), left
    for degree in range(1, most):
        longer = mean * right + left_power
        mean = longer if n is None else torch.where(degree < n, longer, mean)
        left_power = left_power * left
    return mean


def inclusion_probability(mass: Tensor, n: Tensor) -> Tensor:
    """1 - (1 - q)^n: that one of n i.i.d. drafts falls on mass q; accurate for small q."""
    return -torch.expm1(n * torch.log1p(-mass.clamp(max=1.0)))


def bracket(short: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Bracket where a condition ceases to hold, between a and b; shape (B, 1) each.

    Parameters
    ----------
    short : callable
        From points (B, m) to whether it still holds there.
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
    """Narrow the bracket of a rising function's root to two neighbouring breakpoints.

    Parameters
    ----------
    excess : callable
        The function, from points (B, 1).
    a, b : Tensor, shape (B, 1)
    breakpoints : Tensor, shape (B, M)
        Where its slope may jump, ascending, the first at most a: over one chords converge slowly.
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
    """Root of a rising function between a and b, shape (B, 1).

    Regula falsi (Anderson and Bjoerck), with a bisection whenever three steps have not halved the
    bracket; `ROOT_STEPS` evaluations, or fewer on the CPU, where looking at values is no wait.  A
    row stays where it settles first: on flat ground another step would go far.
    """
    looks = a.device.type == "cpu" and not torch.compiler.is_compiling()
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
        if looks and bool((value.abs() <= SETTLED).all()):
            break
        short = value < 0
        # an end that stays twice counts less, or the chord would converge slowly
        fade = 1.0 - value / torch.where(short, low, high)
        fade = torch.where(fade > 0, fade, 0.5)
        fade = torch.where(value.sign() == previous, fade, 1.0)
        previous = value.sign()
        low, high = torch.where(short, value, fade * low), torch.where(short, fade * high, value)
        a, b = torch.where(short, u, a), torch.where(short, b, u)
        settled = value.abs() <= SETTLED
        low, high = low.masked_fill(settled, 0.0), high.masked_fill(settled, 0.0)
        a, b = torch.where(settled, u, a), torch.where(settled, u, b)
    return u
