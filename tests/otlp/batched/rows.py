"""Rows of two distributions, and the verifications of one step that take them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

from otlp import batched
from otlp.distribution import FloatArray

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
RULES = {
    rule.__name__: rule
    for rule in (
        batched.verify,
        batched.verify_histogram,
        batched.speculative_sampling,
        batched.recursive_rejection,
        batched.k_seq,
    )
}
"""Those whose drafts are i.i.d."""
DIFFERENT = {
    rule.__name__: rule
    for rule in (
        batched.recursive_rejection_without_replacement,
        batched.verify_without_replacement,
    )
}
"""Those whose drafts are different tokens."""


def spread(law: Any, count: int, dtype: Any = torch.float64) -> Any:
    """So many rows of one distribution."""
    row = law if isinstance(law, torch.Tensor) else torch.tensor(law, dtype=dtype)
    return row.reshape(1, -1).expand(count, -1)


SUBNORMAL = [*product([5e-324, 1e-322, 1e-310, 1e-300], range(3))]
"""Masses, and where they stand among three tokens."""


def subnormal_pairs(tiny: float, position: int) -> list[tuple[FloatArray, FloatArray]]:
    one, other = (np.insert(law, position, tiny) for law in ([0.0041, 0.9959], [0.3, 0.7]))
    return [(one, one), (one, other), (other, one)]
