"""PyTorch's random draws during an enumeration; this module does not import PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from otlp.auditing.random_source import RandomSource


def followed_torch(source: RandomSource) -> AbstractContextManager[Any]:
    """Return a context in which PyTorch's random functions draw from the source.

    The context does nothing if PyTorch is not loaded.
    """
    if "torch" not in sys.modules:
        return nullcontext()
    from otlp.auditing.lazy_tensors import LazyTensors

    return LazyTensors(source)


@contextmanager
def seeded_torch(rng: np.random.Generator) -> Iterator[None]:
    """Seed PyTorch's default generator from `rng` within the context, if PyTorch is loaded."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        yield
