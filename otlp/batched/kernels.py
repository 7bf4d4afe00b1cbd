"""Where kernels of our own do what PyTorch's operations would, and if not why."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

import torch

from otlp.errors import Capability

LEAST_TRITON = 3
"""Major version of Triton that the kernels are written for."""

LEAST_GPU = 8
"""Major compute capability that Triton itself supports: that of an A100."""


def supports_kernels(device: torch.device | str) -> Capability:
    """Whether `martingale` runs as kernels on this device, or the reason why in PyTorch.

    On a CPU numba compiles one kernel, on a GPU of NVIDIA Triton four.  PyTorch's operations, which
    give the same tokens, stand in for them where they cannot be had, and in compiled code.

    Parameters
    ----------
    device : torch.device or str

    Returns
    -------
    Capability

    Examples
    --------
    >>> from otlp import batched
    >>> bool(batched.supports_kernels("cpu"))
    True
    >>> batched.supports_kernels("meta").reason
    'no kernels are written for devices of type meta'
    """
    device = torch.device(device)
    if device.type == "cuda":
        return _of_gpu(torch.cuda.current_device() if device.index is None else device.index)
    known = device.type == "cpu"
    return Capability(
        known, "" if known else f"no kernels are written for devices of type {device}"
    )


@cache
def _of_gpu(index: int) -> Capability:
    installed = version("triton") if find_spec("triton") else None
    capability = torch.cuda.get_device_capability(index)
    return supports_triton(installed, capability, hip=torch.version.hip is not None)


def supports_triton(installed: str | None, capability: tuple[int, int], hip: bool) -> Capability:
    """Whether the kernels of GPUs run with this version of Triton, on a GPU of this capability."""
    if hip:
        return Capability(False, "the kernels have not been tried on GPUs of AMD")
    if installed is None:
        return Capability(False, "Triton is not installed: pip install triton")
    if int(installed.split(".")[0]) < LEAST_TRITON:
        return Capability(False, f"Triton {installed} is older than {LEAST_TRITON}.0: update it")
    major, minor = capability
    if major < LEAST_GPU:
        return Capability(
            False, f"the GPU has compute capability {major}.{minor}: Triton needs {LEAST_GPU}.0"
        )
    return Capability(True)
