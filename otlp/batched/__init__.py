"""Verification on the device: B rows at once in PyTorch, on the CPU or a GPU.

What a serving engine calls after the target and the draft model have run.  Nothing here waits
for the device: shapes are fixed, no value is read back, randomness is passed in, so every
function may stand inside `torch.compile` and a CUDA graph (with ``validate=False`` there).
One file an idea; `import otlp` does not import this package, nor torch.
"""

from otlp.errors import EngineNotFoundError

try:
    import torch as torch
except ImportError as error:
    raise EngineNotFoundError(
        'otlp.batched needs PyTorch: install it with pip install "otlp[torch]"'
    ) from error

from otlp.batched.certificate import Certificate, acceptance, acceptance_histogram
from otlp.batched.histogram import certified_loss, verify_histogram
from otlp.batched.paths import Round, verify_paths
from otlp.batched.rows import PADDING, softmax, uniforms
from otlp.batched.rules import k_seq, recursive_rejection, single_draft
from otlp.batched.slices import slices
from otlp.batched.two_slice import ScoreLaw, TwoSlice, two_slice_step
from otlp.batched.verify import verify

__all__ = [
    "PADDING",
    "Certificate",
    "Round",
    "ScoreLaw",
    "TwoSlice",
    "acceptance",
    "acceptance_histogram",
    "certified_loss",
    "k_seq",
    "recursive_rejection",
    "single_draft",
    "slices",
    "softmax",
    "two_slice_step",
    "uniforms",
    "verify",
    "verify_histogram",
    "verify_paths",
]
