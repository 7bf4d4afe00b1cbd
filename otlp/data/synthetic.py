"""Made-up logits that look like a language model pair's, for any vocabulary size.

For each row the generator first draws what is to come out, the target's entropy and the overlap
of target and draft, and then solves for the two scales that give it.  So the statistics that
decide how hard a row is stay the same from V = 1,000 to V = 256,000.

Examples
--------
>>> from otlp import synthetic
>>> synthetic.generate(rows=2, vocab_size=1000).vocab_size
1000
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from otlp.checks import whole_number
from otlp.data.captures import Capture
from otlp.distribution import FloatArray, entropy, softmax
from otlp.errors import InvalidInputError

__all__ = ["generate"]

# Both are low + (high - low) u**shape for a uniform u: entropies (in nats) have mean 2,
# overlaps mean 0.75.
ENTROPY_LOW, ENTROPY_HIGH, ENTROPY_SHAPE = 0.5, 5.0, 2.0
OVERLAP_LOW, OVERLAP_HIGH, OVERLAP_SHAPE = 0.5, 0.95, 0.8
# Drafts agree more where the target is sure: the correlation of the normal scores of the two.
CORRELATION = -0.6
# The spread of the Gaussian around the Zipf line, in units of log rank.
TAIL = 0.4
# How far a context reorders the tokens, against their order of overall frequency.
REORDERING = 3.0
PRECISION = 1e-4
# A smaller vocabulary cannot reach the entropies.
LEAST_TOKENS = 1000


MOST_LOGITS = 2**36
"""Of each model; 256 GiB in float32."""


def generate(
    rows: int = 16,
    vocab_size: int = 32_000,
    *,
    seed: int = 0,
    dtype: str = "float32",
    first: int = 0,
) -> Capture:
    """Generate logits like those of a target and a draft language model.

    Parameters
    ----------
    rows : int
        The number of rows, at least 1.
    vocab_size : int
        The vocabulary size V, at least 1,000.
    seed : int
        Fixes every number; a row depends on the seed and its own number alone.
    dtype : {"float32", "float16"}
        The precision of the logits.
    first : int
        The number of the first row: ``generate(4, first=8)`` gives rows 8 to 11.

    Returns
    -------
    Capture
        With ``synthetic=True``, and "synthetic" in the models' names.

    Raises
    ------
    InvalidInputError
        If `rows`, `vocab_size`, `seed`, `dtype` or `first` is out of its range.

    Notes
    -----
    The target's logits are minus an exponent times the log of the token's rank (Zipf's law), with
    Gaussian deviations; the draft's are these plus Gaussian noise.  At temperature 1 the target's
    entropy is in 0.5 to 5 nats with mean 2, and the overlap of the two distributions, which is the
    acceptance of one draft, in 0.5 to 0.95 with mean 0.75; it falls as entropy rises.  The ranges
    are like a large model's with a good draft, and not fitted to one pair.

    About 60 passes of exponentials and a sort a row: O(rows V log V), some 0.04 s a row at
    V = 32,000.  Memory is that of the result, 8 V bytes a row in float32.

    Examples
    --------
    >>> from otlp import synthetic
    >>> capture = synthetic.generate(rows=2, vocab_size=1000, seed=1)
    >>> target, draft = capture.distributions(row=0)
    >>> capture.synthetic, 0 < float(abs(target - draft).sum()) < 2
    (True, True)
    """
    rows = whole_number(rows, "rows")
    vocab_size = whole_number(vocab_size, "vocab_size", LEAST_TOKENS)
    seed = whole_number(seed, "seed", 0)
    first = whole_number(first, "first", 0)
    if not isinstance(dtype, str) or dtype not in ("float32", "float16"):
        raise InvalidInputError(f"dtype is {dtype!r}: it must be 'float32' or 'float16'")
    if rows * vocab_size > MOST_LOGITS:
        raise InvalidInputError(
            f"rows times vocab_size is above {MOST_LOGITS:,}: generate fewer rows at a time"
        )
    target, draft = np.empty((2, rows, vocab_size), dtype=dtype)
    log_rank = np.log(np.arange(1, vocab_size + 1))
    for row in range(rows):
        # A generator a row, so that a row does not depend on how many there are.
        rng = np.random.default_rng([seed, first + row])
        target[row], draft[row] = _row(rng, log_rank)
    which = f", first={first}" if first else ""
    return Capture(
        target_logits=target,
        draft_logits=draft,
        target_model=f"synthetic-zipf-{vocab_size}",
        draft_model=f"synthetic-zipf-{vocab_size}-noisy",
        tokenizer=f"synthetic-{vocab_size}",
        source=f"otlp.data.synthetic.generate({rows=}, {vocab_size=}, {seed=}{which})",
        synthetic=True,
        note="Made up: no language model computed these logits.",
    )


def _row(rng: np.random.Generator, log_rank: FloatArray) -> tuple[FloatArray, FloatArray]:
    vocab_size = log_rank.size
    nats, overlap = _draw_statistics(rng)
    order = np.argsort(log_rank + REORDERING * rng.gumbel(size=vocab_size))
    line = np.empty(vocab_size)
    line[order] = -log_rank
    line += TAIL * rng.standard_normal(vocab_size)
    exponent = _root(lambda scale: entropy(softmax(scale * line)), nats)
    target = exponent * line
    p = softmax(target)
    noise = rng.standard_normal(vocab_size)
    amplitude = _root(
        lambda scale: float(np.minimum(p, softmax(target + scale * noise)).sum()), overlap
    )
    return target, target + amplitude * noise


def _draw_statistics(rng: np.random.Generator) -> tuple[float, float]:
    """Draw a target entropy, and an overlap that tends to fall as the entropy rises."""
    first, second = rng.standard_normal(2)
    second = CORRELATION * first + math.sqrt(1.0 - CORRELATION**2) * second
    u, v = (0.5 * (1.0 + math.erf(score / math.sqrt(2.0))) for score in (first, second))
    nats = ENTROPY_LOW + (ENTROPY_HIGH - ENTROPY_LOW) * u**ENTROPY_SHAPE
    overlap = OVERLAP_LOW + (OVERLAP_HIGH - OVERLAP_LOW) * v**OVERLAP_SHAPE
    return nats, overlap


def _root(falling: Callable[[float], float], wanted: float) -> float:
    """Bisect for the positive root of ``falling(scale) = wanted``; ``falling(0) >= wanted``."""
    low, high = 0.0, 1.0
    while falling(high) > wanted and high < 1e3:
        low, high = high, 2.0 * high
    while high - low > PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return high
