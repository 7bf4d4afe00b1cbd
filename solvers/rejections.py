"""Sequences of rejected tokens in recursive rejection sampling without replacement.

What is left of the target after any rejections is (p - b q)^+, normalised, for a number b that
depends on the rejected masses.  So a step adds, to all tokens with p/q in an interval, a multiple
of p and of q: O(log V).  The sequences are k^(n-1) for a support of k tokens; where these are too
many, drawn ones give the acceptance without bias.  The output needs no average: whatever was
rejected, a step puts out exactly what was left.
"""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import WithoutReplacement
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals
from otlp.plan.plan import MISS
from otlp.timing import seconds_left

TRIES = 6
"""Draws of a rejected token that may hit one that is gone before all tokens are looked at."""

PIECE = 20_000
"""Steps of drawn sequences between two looks at the time limit."""


def all_sequences(target: FloatArray, drafts: WithoutReplacement) -> Marginals:
    """Acceptance and output distribution, summed over all sequences of rejected tokens.

    Returns
    -------
    Marginals
        O(k^(n-1) log k) for a support of k tokens.
    """
    tokens, masses, above = _by_ratio(target, drafts)
    top, tail = drafts.top_and_tail
    places = np.flatnonzero(np.isin(tokens, top))
    added = np.zeros((4, tokens.size + 2))
    path = np.zeros(drafts.n - 1, dtype=np.int64)
    _walk(0, 0.0, 1.0, path, masses, above, places, tail, added)
    return Marginals(*_added_up(target, tokens, masses, added), "enumerated")


def drawn_sequences(
    target: FloatArray, drafts: WithoutReplacement, samples: int, rng: np.random.Generator
) -> Marginals:
    """Output distribution, and the acceptance estimated, over drawn sequences of rejected tokens.

    Parameters
    ----------
    target : ndarray, shape (V,)
    drafts : WithoutReplacement
    samples : int
        Sequences to draw, at least 2; fewer where the deadline comes before, but a piece of them.
    rng : numpy.random.Generator

    Returns
    -------
    Marginals
        With an interval; O(V log V), and O(n^2 + n log V) a sequence.
    """
    tokens, masses, above = _by_ratio(target, drafts)
    top, tail = drafts.top_and_tail
    places = np.flatnonzero(np.isin(tokens, top))
    rare = masses[:2].copy()
    rare[:, places] = 0.0
    below = np.zeros((2, tokens.size + 2))
    np.cumsum(rare, axis=1, out=below[:, 1:])
    added = np.zeros((4, tokens.size + 2))
    missed, drawn = list[FloatArray](), 0
    while drawn < samples and (drawn == 0 or seconds_left() > 0.0):
        piece = np.empty(min(max(1, PIECE // drafts.n), samples - drawn))
        uniforms = rng.random((piece.size, max(drafts.n - 1, 1), TRIES + 1))
        _draw(uniforms, masses, above, below, places, tail, drafts.n, added, piece)
        missed.append(piece)
        drawn += piece.size
    found = _added_up(target, tokens, masses, added / drawn)
    return estimated(*found, np.concatenate(missed))


def estimated(acceptance: FloatArray, output: FloatArray, missed: FloatArray) -> Marginals:
    """Marginals from drawn sequences, and the chance that the drafts of each all fail."""
    low, high = mean_interval(missed)
    method = f"by construction (each step puts out what was left, {missed.size:,} drawn sequences)"
    return Marginals(acceptance, output, method, interval=(1.0 - high, 1.0 - low))


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Interval of the mean of what samples in [0, 1] are drawn from; misses it once in 1 / `MISS`.

    Source: Maurer and Pontil 2009, "Empirical Bernstein bounds", Theorem 4; no assumption beside
    independence and the range.
    """
    doubt = float(np.log(4.0 / MISS))
    spread = np.sqrt(2.0 * float(values.var(ddof=1)) * doubt / values.size)
    half = float(spread) + 7.0 * doubt / (3.0 * (values.size - 1))
    mean = float(values.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def _by_ratio(
    target: FloatArray, drafts: WithoutReplacement
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Drafted tokens by p/q ascending; p, q, p/q of these and of all others together; sums above.

    The last token stands for all those that are never drafted.
    """
    q = drafts.draft
    tokens = np.flatnonzero(q)
    with np.errstate(over="ignore"):
        ratio = target[tokens] / q[tokens]
    order = np.argsort(ratio, kind="stable")
    tokens, ratio = tokens[order], ratio[order]
    outside = float(target[q == 0.0].sum())
    masses = np.array(
        [[*target[tokens], outside], [*q[tokens], 0.0], [*ratio, np.inf]], dtype=np.float64
    )
    above = np.zeros((2, tokens.size + 2))
    above[:, :-1] = np.cumsum(masses[:2, ::-1], axis=1)[:, ::-1]
    return tokens, masses, above


def _added_up(
    target: FloatArray, tokens: IntArray, masses: FloatArray, added: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Acceptance and output by token, from the multiples of p and q that were added."""
    added = np.cumsum(added, axis=1)[:, :-1]
    taken = np.maximum(added[0] * masses[0] + added[1] * masses[1], 0.0)
    left = np.maximum(added[2] * masses[0] + added[3] * masses[1], 0.0)
    outside = masses[0, -1]
    acceptance = np.zeros(target.size)
    acceptance[tokens] = taken[:-1]
    output = target * (left[-1] / outside) if outside > 0.0 else np.zeros_like(target)
    output[tokens] = taken[:-1] + left[:-1]
    return acceptance, output


@compiled
def _walk(
    depth: int,
    level: float,
    reach: float,
    path: IntArray,
    masses: FloatArray,
    above: FloatArray,
    top: IntArray,
    tail: float,
    added: FloatArray,
) -> None:
    """Add what the next draft does after the rejection of ``path[:depth]``, and go on from there.

    Tokens come by p/q ascending: `masses` has the rows p, q and p/q, `above` the sums of p and q
    from each token on, and `added` what is taken (times p, times q) and what is left at the end
    (times p, times q) from each token on.
    """
    target, draft, _ = masses
    step = _step(level, reach, path[:depth], masses, above, top, tail, added, depth == path.size)
    share, scale, _, middle = step
    if depth == path.size:
        return
    for token in range(middle):
        rejected = draft[token] * scale - max(target[token] - draft[token] * level, 0.0)
        if rejected > 0.0 and not _among(path[:depth], token):
            path[depth] = token
            _walk(depth + 1, level + scale, share * rejected, path, masses, above, top, tail, added)


@compiled
def _step(
    level: float,
    reach: float,
    path: IntArray,
    masses: FloatArray,
    above: FloatArray,
    top: IntArray,
    tail: float,
    added: FloatArray,
    last: bool,
) -> tuple[float, float, int, int]:
    """Add what one draft does: r = (p - level q)^+ / total meets the draft q / left.

    Returns
    -------
    share : float
        `reach` over total; 0 where nothing is left.
    scale : float
        Total over left: the next level is that much higher.
    first, middle : int
        Where tokens begin that are left before this step, and after it.
    """
    ratio = masses[2]
    first = np.searchsorted(ratio, level, side="right")
    total = above[0, first] - level * above[1, first]
    if total <= 0.0:
        return 0.0, 0.0, 0, 0
    share, scale = reach / total, total / _left(masses[1], top, tail, path)
    middle = np.searchsorted(ratio, level + scale, side="right")
    added[0, first] += share
    added[1, first] -= share * level
    added[0, middle] -= share
    added[1, middle] += share * (level + scale)
    if last:
        added[2, middle] += share
        added[3, middle] -= share * (level + scale)
    return share, scale, int(first), int(middle)


@compiled
def _among(tokens: IntArray, token: int) -> bool:
    for other in tokens:
        if other == token:
            return True
    return False


@compiled
def _left(draft: FloatArray, top: IntArray, tail: float, path: IntArray) -> float:
    """Mass of all tokens but those of the path; see `WithoutReplacement.outside`."""
    left = tail
    for token in path:
        if not _among(top, token):
            left -= draft[token]
    left = max(left, 0.0)
    for token in top:
        if not _among(path, token):
            left += draft[token]
    return left


@compiled
def _draw(
    uniforms: FloatArray,
    masses: FloatArray,
    above: FloatArray,
    below: FloatArray,
    top: IntArray,
    tail: float,
    n: int,
    added: FloatArray,
    missed: FloatArray,
) -> None:
    """Draw sequences of rejected tokens; `missed` is the chance that their drafts all fail."""
    path = np.empty(n - 1, np.int64)
    for row in range(missed.size):
        level, reach = 0.0, 1.0
        for depth in range(n):
            share, scale, first, middle = _step(
                level, reach, path[:depth], masses, above, top, tail, added, depth == n - 1
            )
            if share == 0.0:
                break
            rejected = _rejected(level, scale, first, middle, path[:depth], masses, below, top)
            reach = share * rejected
            if depth == n - 1 or rejected <= 0.0:
                break
            path[depth] = _rejected_token(
                uniforms[row, depth], level, scale, first, middle, path[:depth], masses, below, top
            )
            level += scale
        missed[row] = min(reach, 1.0)


@compiled
def _of_token(level: float, scale: float, masses: FloatArray, token: int) -> float:
    """Mass of a token that this step rejects, up to the scale of all tokens."""
    p, q = float(masses[0, token]), float(masses[1, token])
    return max(q * scale - max(p - q * level, 0.0), 0.0)


@compiled
def _of_others(
    level: float, scale: float, first: int, middle: int, below: FloatArray, end: int
) -> float:
    """The same of all tokens before `end` but the top ones, those that are gone included."""
    value = scale * float(below[1, min(end, first)])
    if end > first:
        end = min(end, middle)
        q, p = below[1, end] - below[1, first], below[0, end] - below[0, first]
        value += max((level + scale) * float(q) - float(p), 0.0)
    return value


@compiled
def _rejected(
    level: float,
    scale: float,
    first: int,
    middle: int,
    path: IntArray,
    masses: FloatArray,
    below: FloatArray,
    top: IntArray,
) -> float:
    """Mass that this step rejects, up to the scale of all tokens."""
    total = _of_others(level, scale, first, middle, below, middle)
    for token in path:
        if not _among(top, token):
            total -= _of_token(level, scale, masses, token)
    total = max(total, 0.0)
    for token in top:
        if not _among(path, token):
            total += _of_token(level, scale, masses, token)
    return total


@compiled
def _rejected_token(
    uniforms: FloatArray,
    level: float,
    scale: float,
    first: int,
    middle: int,
    path: IntArray,
    masses: FloatArray,
    below: FloatArray,
    top: IntArray,
) -> int:
    """Draw a token by the mass that this step rejects of it; none of the path."""
    common = _of_others(level, scale, first, middle, below, middle)
    total = common
    for token in top:
        if not _among(path, token):
            total += _of_token(level, scale, masses, token)
    for tried in range(uniforms.size - 1):
        wanted = uniforms[tried] * total
        if wanted >= common:
            wanted -= common
            for token in top:
                if not _among(path, token):
                    own = _of_token(level, scale, masses, token)
                    if wanted < own:
                        return int(token)
                    wanted -= own
            continue
        low, high = 0, middle
        while high - low > 1:
            mid = (low + high) // 2
            if _of_others(level, scale, first, middle, below, mid) <= wanted:
                low = mid
            else:
                high = mid
        gone = _among(path, low) or _among(top, low)
        if not gone and _of_token(level, scale, masses, low) > 0.0:
            return low
    # What is gone holds nearly all the mass: look at every token.
    total = 0.0
    for token in range(middle):
        if not _among(path, token):
            total += _of_token(level, scale, masses, token)
    wanted = uniforms[-1] * total
    found = -1
    for token in range(middle):
        own = 0.0 if _among(path, token) else _of_token(level, scale, masses, token)
        if own > 0.0:
            found = token
            if wanted < own:
                break
            wanted -= own
    return found
