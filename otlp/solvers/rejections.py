"""Sequences of rejected tokens in recursive rejection sampling without replacement.

The residual of the target after any rejections is (p - b q)^+, normalised, for a number b that
depends on the rejected masses.  So a step adds multiples of p and of q to all tokens with p/q in
an interval, in O(log V).  There are k^(n-1) sequences for a support of k tokens; if these are too
many, random sequences give an unbiased estimate of the acceptance.  The output distribution is
exact for each sequence, because a step outputs exactly the residual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import WithoutReplacement
from otlp.drafts.without_replacement import UNIT
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals
from otlp.plan.plan import MISS
from otlp.reductions.subset_selection import ratio_order
from otlp.timing import seconds_left

ATTEMPTS = 6
"""Attempts to sample a token that is not drawn yet by rejection, before a scan of all tokens."""

BLOCK = 20_000
"""Number of steps of drawn sequences between two checks of the time limit."""


class _Drafts(NamedTuple):
    """The tokens that can be drafted by p/q ascending, and one item for all other tokens.

    Attributes
    ----------
    masses : ndarray, shape (3, k + 1)
        p, q and p/q of each token.
    above, below : ndarray, shape (2, k + 2)
        Sums of p and q from each token on, and before each token; `below` excludes `top`.
    top : ndarray, shape (n,), int64
        The most likely tokens.
    tail : float
        Mass under q of all other tokens.
    """

    masses: FloatArray
    above: FloatArray
    below: FloatArray
    top: IntArray
    tail: float


class _Step(NamedTuple):
    """One step: a draft from q is tested against r = (p - level q)^+, both unnormalised.

    Attributes
    ----------
    level : float
        Level before this step.
    scale : float
        Increase of the level by this step: sum of r over the remaining mass of q.
    first, middle : int
        Index of the first token with a positive residual before and after this step.
    """

    level: float
    scale: float
    first: int
    middle: int


def all_sequences(target: FloatArray, drafts: WithoutReplacement) -> Marginals:
    """Sum acceptance and output distribution over all sequences of rejected tokens.

    O(k^(n-1) log k) for a support of k tokens.
    """
    tokens, known = _by_ratio(target, drafts)
    added = np.zeros((4, tokens.size + 2))
    _enumerate(0, 0.0, 1.0, np.zeros(drafts.n - 1, dtype=np.int64), known, added)
    return Marginals(*_marginals(target, tokens, known.masses, added), "enumerated")


def drawn_sequences(
    target: FloatArray, drafts: WithoutReplacement, samples: int, rng: np.random.Generator
) -> Marginals:
    """Compute the output distribution and estimate the acceptance from random sequences.

    Parameters
    ----------
    target : ndarray, shape (V,)
    drafts : WithoutReplacement
    samples : int
        Number of sequences of rejected tokens, at least 2; fewer, but at least one block, if the
        deadline passes.
    rng : numpy.random.Generator

    Returns
    -------
    Marginals
        Marginals with an interval; O(V log V), plus O(n^2 + n log V) per sequence.
    """
    tokens, known = _by_ratio(target, drafts)
    added = np.zeros((4, tokens.size + 2))
    missed, drawn = list[FloatArray](), 0
    while drawn < samples and (drawn == 0 or seconds_left() > 0.0):
        block = np.empty(min(max(1, BLOCK // drafts.n), samples - drawn))
        uniforms = rng.random((block.size, max(drafts.n - 1, 1), ATTEMPTS + 1))
        _sample(uniforms, known, drafts.n, added, block)
        missed.append(block)
        drawn += block.size
    found = _marginals(target, tokens, known.masses, added / drawn)
    return sampled_marginals(*found, np.concatenate(missed))


def sampled_marginals(acceptance: FloatArray, output: FloatArray, missed: FloatArray) -> Marginals:
    """Return marginals with an interval from the miss probabilities of random sequences."""
    low, high = mean_interval(missed)
    method = f"by construction (each step outputs the residual; {missed.size:,} random sequences)"
    return Marginals(acceptance, output, method, interval=(1.0 - high, 1.0 - low))


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Return a confidence interval of the mean of values in [0, 1], with error probability `MISS`.

    Source: Maurer and Pontil 2009, "Empirical Bernstein bounds", Theorem 4, which assumes only
    independence and the range.
    """
    log_term = float(np.log(4.0 / MISS))
    spread = np.sqrt(2.0 * float(values.var(ddof=1)) * log_term / values.size)
    half = float(spread) + 7.0 * log_term / (3.0 * (values.size - 1))
    mean = float(values.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def _by_ratio(target: FloatArray, drafts: WithoutReplacement) -> tuple[IntArray, _Drafts]:
    """Return the tokens that can be drafted by p/q ascending, and their sums; q times `UNIT`."""
    draft = UNIT * drafts.draft
    tokens = ratio_order(target, draft)
    p, q, outside = target[tokens], draft[tokens], float(target[draft == 0.0].sum())
    masses = np.array([np.append(p, outside), np.append(q, 0.0), np.append(p / q, np.inf)])
    above = np.zeros((2, tokens.size + 2))
    above[:, :-1] = np.cumsum(masses[:2, ::-1], axis=1)[:, ::-1]
    top, tail = drafts.top_and_tail
    places = np.flatnonzero(np.isin(tokens, top))
    rare = masses[:2].copy()
    rare[:, places] = 0.0
    below = np.zeros((2, tokens.size + 2))
    np.cumsum(rare, axis=1, out=below[:, 1:])
    return tokens, _Drafts(masses, above, below, places, UNIT * tail)


def _marginals(
    target: FloatArray, tokens: IntArray, masses: FloatArray, added: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return acceptance and output by token from the accumulated multiples of p and q."""
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
def _enumerate(
    depth: int, level: float, reach: float, path: IntArray, drafts: _Drafts, added: FloatArray
) -> None:
    """Add the masses of the next draft after the rejection of ``path[:depth]``, and recurse.

    The rows of `added` are increments, from each token on, of the multiples of p and of q that are
    accepted, and of the multiples of p and of q in the final residual.
    """
    share, step = _step(level, reach, path[:depth], drafts, added, depth == path.size)
    if depth == path.size:
        return
    for token in range(step.middle):
        rejected = _rejected_mass(step, drafts, token)
        if rejected > 0.0 and not _contains(path[:depth], token):
            path[depth] = token
            _enumerate(depth + 1, level + step.scale, share * rejected, path, drafts, added)


@compiled
def _step(
    level: float, reach: float, path: IntArray, drafts: _Drafts, added: FloatArray, last: bool
) -> tuple[float, _Step]:
    """Add the masses of one draft; return `reach` over the residual's sum (0 if it is 0)."""
    ratio, above = drafts.masses[2], drafts.above
    first = np.searchsorted(ratio, level, side="right")
    total = above[0, first] - level * above[1, first]
    if total <= 0.0:
        return 0.0, _Step(level, 0.0, 0, 0)
    share, scale = reach / total, total / _mass_outside(drafts, path)
    middle = np.searchsorted(ratio, level + scale, side="right")
    added[0, first] += share
    added[1, first] -= share * level
    added[0, middle] -= share
    added[1, middle] += share * (level + scale)
    if last:
        added[2, middle] += share
        added[3, middle] -= share * (level + scale)
    return share, _Step(level, scale, int(first), int(middle))


@compiled
def _contains(tokens: IntArray, token: int) -> bool:
    for other in tokens:
        if other == token:
            return True
    return False


@compiled
def _mass_outside(drafts: _Drafts, path: IntArray) -> float:
    """Return the mass under q of all tokens outside the path, without cancellation."""
    draft, left = drafts.masses[1], drafts.tail
    for token in path:
        if not _contains(drafts.top, token):
            left -= draft[token]
    left = max(left, 0.0)
    for token in drafts.top:
        if not _contains(path, token):
            left += draft[token]
    return left


@compiled
def _sample(
    uniforms: FloatArray, drafts: _Drafts, n: int, added: FloatArray, missed: FloatArray
) -> None:
    """Draw sequences of rejected tokens; write to `missed` P(all drafts are rejected)."""
    path = np.empty(n - 1, np.int64)
    for row in range(missed.size):
        level, reach = 0.0, 1.0
        for depth in range(n):
            share, step = _step(level, reach, path[:depth], drafts, added, depth == n - 1)
            if share == 0.0:
                break
            rejected = _total_rejected(step, path[:depth], drafts)
            reach = share * rejected
            if depth == n - 1 or rejected <= 0.0:
                break
            path[depth] = _rejected_token(uniforms[row, depth], step, path[:depth], drafts)
            level += step.scale
        missed[row] = min(reach, 1.0)


@compiled
def _rejected_mass(step: _Step, drafts: _Drafts, token: int) -> float:
    """Return the unnormalised rejected mass of a token in this step."""
    p, q = float(drafts.masses[0, token]), float(drafts.masses[1, token])
    return max(q * step.scale - max(p - q * step.level, 0.0), 0.0)


@compiled
def _rejected_mass_before(step: _Step, drafts: _Drafts, end: int) -> float:
    """Return the rejected mass of all tokens before `end` except `top`, including the path."""
    below, first = drafts.below, step.first
    value = step.scale * float(below[1, min(end, first)])
    if end > first:
        end = min(end, step.middle)
        q, p = below[1, end] - below[1, first], below[0, end] - below[0, first]
        value += max((step.level + step.scale) * float(q) - float(p), 0.0)
    return value


@compiled
def _total_rejected(step: _Step, path: IntArray, drafts: _Drafts) -> float:
    """Return the unnormalised rejected mass of this step."""
    total = _rejected_mass_before(step, drafts, step.middle)
    for token in path:
        if not _contains(drafts.top, token):
            total -= _rejected_mass(step, drafts, token)
    total = max(total, 0.0)
    for token in drafts.top:
        if not _contains(path, token):
            total += _rejected_mass(step, drafts, token)
    return total


@compiled
def _rejected_token(uniforms: FloatArray, step: _Step, path: IntArray, drafts: _Drafts) -> int:
    """Sample a token outside the path with probability proportional to its rejected mass."""
    top, middle = drafts.top, step.middle
    common = _rejected_mass_before(step, drafts, middle)
    total = common
    for token in top:
        if not _contains(path, token):
            total += _rejected_mass(step, drafts, token)
    for attempt in range(uniforms.size - 1):
        wanted = uniforms[attempt] * total
        if wanted >= common:
            wanted -= common
            for token in top:
                if not _contains(path, token):
                    own = _rejected_mass(step, drafts, token)
                    if wanted < own:
                        return int(token)
                    wanted -= own
            continue
        low, high = 0, middle
        while high - low > 1:
            mid = (low + high) // 2
            if _rejected_mass_before(step, drafts, mid) <= wanted:
                low = mid
            else:
                high = mid
        excluded = _contains(path, low) or _contains(top, low)
        if not excluded and _rejected_mass(step, drafts, low) > 0.0:
            return low
    # The path has nearly all the mass, so scan all tokens, whose sum has no cancellation.
    total = 0.0
    for token in range(middle):
        if not _contains(path, token):
            total += _rejected_mass(step, drafts, token)
    wanted, found = uniforms[-1] * total, -1
    for token in range(middle):
        own = 0.0 if _contains(path, token) else _rejected_mass(step, drafts, token)
        if own > 0.0:
            found = token
            if wanted < own:
                break
            wanted -= own
    return found
