"""Synthetic logits similar to those of a pair of language models, for any vocabulary size.

For each row the generator draws the entropy of the target and the overlap of target and draft, and
then solves for the two scales that result in this entropy and overlap.  The statistics that
determine the difficulty of a row therefore do not depend on V, from V = 1,000 to V = 256,000.

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

# Entropies (in nats) and overlaps are low + (high - low) u**shape for a uniform u, with means 2 and
# 0.75.
ENTROPY_LOW, ENTROPY_HIGH, ENTROPY_SHAPE = 0.5, 5.0, 2.0
OVERLAP_LOW, OVERLAP_HIGH, OVERLAP_SHAPE = 0.5, 0.95, 0.8
# Correlation of the normal scores of entropy and overlap: drafts agree more if entropy is low.
CORRELATION = -0.6
# Standard deviation of the logits around the Zipf line, in units of log rank.
TAIL = 0.4
# Scale of the reordering of the tokens by a context, relative to the log of their overall rank.
REORDERING = 3.0
PRECISION = 1e-4
# A smaller vocabulary cannot reach the entropies.
LEAST_TOKENS = 1000


MOST_LOGITS = 2**36
"""Maximum number of logits per model (256 GiB in float32)."""


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
        Number of rows, at least 1.
    vocab_size : int
        Vocabulary size V, at least 1,000.
    seed : int
        Random seed.  A row depends only on the seed and its number.
    dtype : {"float32", "float16"}
        Precision of the logits.
    first : int
        Number of the first row; ``generate(4, first=8)`` returns rows 8 to 11.

    Returns
    -------
    Capture
        A capture with ``synthetic=True`` and "synthetic" in the names of the models.

    Raises
    ------
    InvalidInputError
        If `rows`, `vocab_size`, `seed`, `dtype` or `first` is out of range.

    Notes
    -----
    The logits of the target are minus an exponent times the log of the token's rank (Zipf's law),
    with Gaussian deviations; the logits of the draft are those of the target plus Gaussian noise.
    At temperature 1 the entropy of the target is in 0.5 to 5 nats with mean 2.  The overlap of the
    two distributions (the acceptance of one draft) is in 0.5 to 0.95 with mean 0.75 and falls with
    the entropy.  The ranges are typical of a large model with a good draft model; they are not
    fitted to one pair.

    Cost per row: about 60 passes of exponentials and one sort, O(V log V), about 0.04 s at
    V = 32,000.  The memory is that of the result, 8 V bytes per row in float32.

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
        raise InvalidInputError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
    if rows * vocab_size > MOST_LOGITS:
        raise InvalidInputError(
            f"rows times vocab_size must be at most {MOST_LOGITS:,}, got {rows * vocab_size:,}; "
            "generate fewer rows at a time"
        )
    target, draft = np.empty((2, rows, vocab_size), dtype=dtype)
    log_rank = np.log(np.arange(1, vocab_size + 1))
    for row in range(rows):
        # One generator per row, so that a row does not depend on the number of rows.
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
        note="Synthetic: no language model computed these logits.",
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
    """Draw an entropy of the target, and an overlap that is negatively correlated with it."""
    first, second = rng.standard_normal(2)
    second = CORRELATION * first + math.sqrt(1.0 - CORRELATION**2) * second
    u, v = (0.5 * (1.0 + math.erf(score / math.sqrt(2.0))) for score in (first, second))
    nats = ENTROPY_LOW + (ENTROPY_HIGH - ENTROPY_LOW) * u**ENTROPY_SHAPE
    overlap = OVERLAP_LOW + (OVERLAP_HIGH - OVERLAP_LOW) * v**OVERLAP_SHAPE
    return nats, overlap


def _root(falling: Callable[[float], float], value: float) -> float:
    """Bisect for the positive root of ``falling(scale) = value``; ``falling(0) >= value``."""
    low, high = 0.0, 1.0
    while falling(high) > value and high < 1e3:
        low, high = high, 2.0 * high
    while high - low > PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return high
