"""Batched verification of draft tokens in PyTorch, on a CPU or a GPU.

A serving engine calls these functions after the target and the draft model have run.  The functions
do not wait for the device: shapes are fixed, no value is read back, and random numbers are
arguments.  Every function can therefore be compiled by `torch.compile` and captured in a CUDA graph
(with ``validate=False``).  `import otlp` imports neither this package nor torch.
"""

from otlp.errors import EngineNotFoundError

try:
    import torch as torch
except ImportError as error:
    raise EngineNotFoundError(
        'otlp.batched needs PyTorch: install it with pip install -e ".[torch]"'
    ) from error

from otlp.batched.certificate import Certificate, acceptance
from otlp.batched.choosing import verify
from otlp.batched.from_logits import martingale_from_logits
from otlp.batched.kernels import supports_kernels
from otlp.batched.martingale_rule import martingale
from otlp.batched.paths import BatchedRound, verify_paths
from otlp.batched.ragged import verify_requests
from otlp.batched.rows import PADDING
from otlp.batched.rules import (
    k_seq,
    recursive_rejection,
    recursive_rejection_without_replacement,
    speculative_sampling,
)
from otlp.batched.sampling import sample, sample_without_replacement, softmax, uniforms

__all__ = [
    "PADDING",
    "BatchedRound",
    "Certificate",
    "acceptance",
    "k_seq",
    "martingale",
    "martingale_from_logits",
    "recursive_rejection",
    "recursive_rejection_without_replacement",
    "sample",
    "sample_without_replacement",
    "softmax",
    "speculative_sampling",
    "supports_kernels",
    "uniforms",
    "verify",
    "verify_paths",
    "verify_requests",
]
