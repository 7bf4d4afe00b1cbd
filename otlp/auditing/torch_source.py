"""PyTorch's random draws in a followed program; nothing here loads PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from otlp.auditing.random_source import RandomSource


def followed_torch(source: RandomSource) -> AbstractContextManager[Any]:
    """Within it, PyTorch's random functions draw from the source, if PyTorch is loaded."""
    if "torch" not in sys.modules:
        return nullcontext()
    from otlp.auditing.followed_tensors import FollowedTensors

    return FollowedTensors(source)


@contextmanager
def seeded_torch(rng: np.random.Generator) -> Iterator[None]:
    """Within it, PyTorch's own generator is seeded from `rng`, if PyTorch is loaded."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        yield
