"""Multi-path linear program: optimal block efficiency over all valid K-path algorithms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from otlp.checks import is_a, whole_number
from otlp.decode.models.model import check_pair
from otlp.decode.models.tabular import TabularModel
from otlp.distribution import FloatArray, Mask
from otlp.errors import InvalidInputError, OTLPError, SizeLimitError

PREFIX_LIMIT = 20_000
"""Maximum number of prefixes of the linear program."""
VIOLATION = 1e-5
"""Tolerated violation of an antichain's bound; the optimum may be too large by this amount."""
ROUNDS = 100
"""Maximum number of linear programs to solve."""


def multipath_optimum(draft: TabularModel, target: TabularModel, paths: int, length: int) -> float:
    """Compute the optimum of the multi-path LP: the best block efficiency with K i.i.d. paths.

    Maximise 1 + sum of A(x) over the prefixes x of 1 to L tokens, where A(x) is the probability
    that x is accepted, subject to A(xy) <= A(x) p(y | x), A(empty) = 1, and, for each antichain S
    of prefixes, A(S) <= 1 - (1 - Q(S))^K.

    Parameters
    ----------
    draft, target : TabularModel
        Models with tables for at least L tokens.
    paths, length : int
        Number of paths K and their length L, at least 1.

    Returns
    -------
    float
        Tight upper bound on the block efficiency of valid algorithms with K i.i.d. paths: one
        algorithm attains it.

    Raises
    ------
    InvalidInputError
        If K or L is less than 1 or the tables are too short.
    SizeLimitError
        If there are more than `PREFIX_LIMIT` prefixes.
    OTLPError
        If `ROUNDS` linear programs are not enough.

    Notes
    -----
    Thomas and Pal, Greedy Multi-Path Block Verification, Theorem 4.3.  There are too many
    antichains to enumerate.  The bound c(Q(S)) is concave in Q(S), so the constraints of all
    antichains are equivalent to: for each slope s, the maximum of A(S) - s Q(S) is at most the
    maximum of c(m) - s m over m.  The first maximum is a dynamic program on the tree, which needs a
    few linear rows per prefix.  Slopes are added where the solution violates an antichain's bound
    by more than `VIOLATION`, until there is no violation; HiGHS solves the linear programs.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, target = decode.random_pair(3, 2, np.random.default_rng(0))
    >>> round(decode.multipath_optimum(draft, target, paths=2, length=2), 4)
    2.705
    """
    _check(draft, target, paths, length)
    size = draft.vocab_size
    q = [draft.joint(t).reshape(-1) for t in range(1, length + 1)]
    slopes = sorted({paths * (1.0 - m) ** (paths - 1) for m in (0.0, 0.25, 0.5, 0.75)})
    for _ in range(ROUNDS):
        found = _solve(target, np.concatenate(q), paths, length, slopes)
        accepted = np.split(found, np.cumsum([level.size for level in q])[:-1])
        slope = _worst_slope(accepted, q, size, paths)
        if slope is None:
            return 1.0 + float(found.sum())
        slopes.append(slope)
    raise OTLPError(f"the multi-path LP did not converge in {ROUNDS} rounds")


def _worst_slope(
    accepted: list[FloatArray], q: list[FloatArray], size: int, paths: int
) -> float | None:
    """Return the slope of the bound at the antichain with the largest violation; None if none."""
    worst, slope = VIOLATION, None
    for value, mass in _extreme_antichains(accepted, q, size, float(paths)):
        rest = max(0.0, 1.0 - mass)
        excess = value - (1.0 - rest**paths)
        if excess > worst:
            worst, slope = excess, paths * rest ** (paths - 1)
    return slope


def _solve(
    target: TabularModel, q: FloatArray, paths: int, length: int, slopes: list[float]
) -> FloatArray:
    """Return the optimal accepted masses under the antichain bounds at the given slopes."""
    size, count = target.vocab_size, q.size
    # Prefixes are ordered by level, so the children of the first token follow the single tokens.
    children = np.arange(size, count)
    parents = children // size - 1
    p = np.concatenate([table.reshape(-1) for table in target.tables[:length]])
    own = scipy.sparse.identity(count, format="csr")
    # A(xy) - A(x) p(y | x) <= 0; for single tokens A(y) <= p(y)
    flow = own - scipy.sparse.csr_matrix((p[size:], (children, parents)), shape=(count, count))
    # best[x] >= A(x) - s Q(x), best[x] >= sum of best over the children, best >= 0, for each slope
    inner = count // size - 1
    gather = scipy.sparse.csr_matrix(
        (np.ones(count - size), (parents, children)), shape=(inner, count)
    )
    top = np.concatenate([np.ones(size), np.zeros(count - size)])[None]
    each, every = scipy.sparse.identity(len(slopes)), np.ones((len(slopes), 1))
    kron = scipy.sparse.kron
    blocks = [
        [flow, None],
        [kron(every, own), -kron(each, own)],
        [None, kron(each, gather - own[:inner])],
        [None, kron(each, top)],
    ]
    tops = np.array([_conjugate(slope, paths) for slope in slopes])
    bounds = [p[:size], np.zeros(count - size), np.kron(slopes, q), np.zeros(inner * len(slopes))]
    cost = np.zeros(count * (1 + len(slopes)))
    cost[:count] = -1.0
    found = scipy.optimize.linprog(
        cost,
        A_ub=scipy.sparse.bmat(blocks, format="csr"),
        b_ub=np.concatenate([*bounds, tops]),
        method="highs",
    )
    if found.x is None:
        raise OTLPError(f"the multi-path LP failed: {found.message}")
    accepted: FloatArray = found.x[:count]
    return accepted


def _conjugate(slope: float, paths: int) -> float:
    """Return the maximum of 1 - (1 - m)^K - slope m over m in [0, 1]."""
    if paths == 1:
        return max(0.0, 1.0 - slope)
    rest = float((slope / paths) ** (1.0 / (paths - 1)))
    return 1.0 - float(rest**paths) - slope * (1.0 - rest)


MOST_PATHS = 10_000


def _check(draft: TabularModel, target: TabularModel, paths: int, length: int) -> None:
    is_a(draft, TabularModel, "draft")
    is_a(target, TabularModel, "target")
    check_pair(draft, target)
    if whole_number(paths, "paths") > MOST_PATHS:
        raise InvalidInputError(f"paths must be at most {MOST_PATHS:,}, got {paths!r}")
    whole_number(length, "length")
    covered = min(draft.length, target.length)
    if length > covered:
        raise InvalidInputError(f"length must be at most the tables' {covered}, got {length}")
    count = sum(float(draft.vocab_size) ** t for t in range(1, length + 1))
    if count > PREFIX_LIMIT:
        raise SizeLimitError(
            f"the multi-path LP would have {count:,.0f} prefixes, more than the limit of "
            f"{PREFIX_LIMIT:,}: use a smaller vocabulary or a shorter path"
        )


def _best_antichain(
    accepted: list[FloatArray], q: list[FloatArray], size: int, slope: float
) -> list[Mask]:
    """Return the antichain that maximises A(S) - slope Q(S), by dynamic programming."""
    own = [a - slope * b for a, b in zip(accepted, q, strict=True)]
    below = [np.zeros_like(level) for level in own]
    for t in range(len(own) - 2, -1, -1):
        best = np.maximum(np.maximum(own[t + 1], below[t + 1]), 0.0)
        below[t] = best.reshape(-1, size).sum(axis=1)
    chosen: list[Mask] = []
    free = np.ones(size, dtype=bool)
    for t in range(len(own)):
        selected = free & (own[t] > 0.0) & (own[t] >= below[t])
        chosen.append(selected)
        free = np.repeat(free & ~selected, size)
    return chosen


def _extreme_antichains(
    accepted: list[FloatArray], q: list[FloatArray], size: int, steepest: float
) -> Iterator[tuple[float, float]]:
    """Yield A(S) and Q(S) of the S that maximise A(S) - s Q(S), for all slopes s in [0, steepest].

    The maximum is convex and piecewise linear in s.  Two pieces are adjacent if the maximum at the
    intersection of their lines lies on these lines; otherwise another piece lies between them.
    """

    def solve(slope: float) -> tuple[float, float]:
        chain = _best_antichain(accepted, q, size, slope)
        value = sum(float(a[m].sum()) for a, m in zip(accepted, chain, strict=True))
        mass = sum(float(b[m].sum()) for b, m in zip(q, chain, strict=True))
        return value, mass

    stack = [(solve(0.0), solve(steepest))]
    yield from stack[0]
    while stack:
        left, right = stack.pop()
        if left[1] - right[1] <= 1e-12:
            continue
        slope = (left[0] - right[0]) / (left[1] - right[1])
        middle = solve(slope)
        gain = middle[0] - slope * middle[1] - (left[0] - slope * left[1])
        if gain <= 1e-11:
            continue
        yield middle
        stack += [(left, middle), (middle, right)]
