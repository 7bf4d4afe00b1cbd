"""Support of devices for compiled kernels."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from otlp.capability import Capability, supported_if

LEAST_TRITON = 3
"""Oldest major version of Triton that the kernels support."""

LEAST_GPU = 8
"""Lowest major compute capability that Triton supports (that of an A100)."""


def supports_kernels(device: torch.device | str) -> Capability:
    """Return whether `martingale` runs compiled kernels on a device, and if not, the reason.

    Numba compiles the kernel for CPUs, and Triton compiles the kernels for NVIDIA GPUs.  On other
    devices, and in code traced by `torch.compile`, PyTorch operations return the same tokens.

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
    'otlp has no kernels for devices of type meta'
    """
    device = torch.device(device)
    if device.type == "cuda":
        return _of_gpu(torch.cuda.current_device() if device.index is None else device.index)
    return supported_if(device.type == "cpu", f"otlp has no kernels for devices of type {device}")


@cache
def _of_gpu(index: int) -> Capability:
    installed = None
    if find_spec("triton"):
        import triton

        installed = triton.__version__
    capability = torch.cuda.get_device_capability(index)
    return supports_triton(installed, capability, hip=torch.version.hip is not None)


def supports_triton(installed: str | None, capability: tuple[int, int], hip: bool) -> Capability:
    """Return whether the GPU kernels run with this Triton version and compute capability."""
    if hip:
        return Capability(False, "the kernels have not been tested on AMD GPUs")
    if installed is None:
        return Capability(False, "Triton is not installed; run pip install triton")
    if int(installed.split(".")[0]) < LEAST_TRITON:
        return Capability(False, f"update Triton to {LEAST_TRITON}.0 or later, got {installed}")
    major, minor = capability
    return supported_if(
        major >= LEAST_GPU,
        f"Triton needs compute capability {LEAST_GPU}.0, the GPU has {major}.{minor}",
    )
