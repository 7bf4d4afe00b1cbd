"""Rows of two distributions, and the one-step verification functions for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from otlp import batched

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
RULES = {
    rule.__name__: rule
    for rule in (
        batched.martingale,
        batched.speculative_sampling,
        batched.recursive_rejection,
        batched.k_seq,
    )
}
"""Functions for i.i.d. drafts."""


def spread(law: Any, count: int, dtype: Any = torch.float64) -> Any:
    """Repeat a distribution over a number of rows."""
    row = law if isinstance(law, torch.Tensor) else torch.tensor(law, dtype=dtype)
    return row.reshape(1, -1).expand(count, -1)


DEGENERATE = {
    "one token": ([1.0], [1.0]),
    "plain": ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
    "equal": ([0.1, 0.2, 0.7], [0.1, 0.2, 0.7]),
    "nearly equal": ([0.5, 0.5], [0.5 + 1e-16, 0.5 - 1e-16]),
    "disjoint": ([0.0, 0.0, 0.5, 0.5], [0.25, 0.75, 0.0, 0.0]),
    "point masses": ([0.0, 1.0], [1.0, 0.0]),
    "point mass draft": ([0.2, 0.2, 0.2, 0.4], [0.0, 1.0, 0.0, 0.0]),
    "zeros in the draft": ([0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.0, 0.5]),
    "zeros in the target": ([0.0, 0.7, 0.3, 0.0], [0.4, 0.3, 0.2, 0.1]),
    "mass outside the draft": ([0.9, 0.05, 0.05], [0.0, 0.3, 0.7]),
    "tiny draft": ([1.0, 0.0, 0.0], [1e-30, 1.0, 0.0]),
    "tiny": ([1e-300, 0.3, 0.7, 0.0], [0.5, 1e-300, 0.0, 0.5]),
    "tiny in both": ([1e-300, 0.5, 0.5], [0.5, 1e-300, 0.5]),
    "subnormal draft": ([0.0, 1.0], [5e-324, 1.0]),
    "subnormals": ([5e-324, 1e-310, 1.0], [1e-310, 1.0, 5e-324]),
    "subnormals of some size": ([0.5, 0.0, 0.5, 0.0], [3.3e-320, 1.5e-323, 3.3e-310, 1.0]),
    "ties": ([0.2, 0.2, 0.3, 0.3], [0.1, 0.1, 0.4, 0.4]),
}
"""Target and draft, of at most four tokens."""


def degenerate_rows(dtype: Any) -> tuple[Any, Any, Any, list[str]]:
    """Return all degenerate rows in one batch, with three, fewer and no drafts, and their names."""
    rows, names = [], []
    for name, (p, q) in DEGENERATE.items():
        support = torch.tensor(q, dtype=dtype).nonzero()[:, 0].tolist()
        first, last = support[0], support[-1]
        wide = (np.pad(law, (0, 4 - len(law))) for law in (p, q))
        p, q = (law.tolist() for law in wide)
        for drafts in ([last, first, last], [last, -1, -1], [-1, first, last], [-1] * 3):
            rows.append((p, q, drafts))
            names.append(name)
    target, draft, tokens = zip(*rows, strict=True)
    made = torch.tensor(target, dtype=dtype), torch.tensor(draft, dtype=dtype)
    return *made, torch.tensor(tokens), names
