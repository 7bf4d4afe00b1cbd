"""Whether kernels take the place of PyTorch's operations on a device."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from otlp.errors import Capability

LEAST_TRITON = 3
"""Major version of Triton that the kernels are written for."""

LEAST_GPU = 8
"""Major compute capability that Triton itself supports: that of an A100."""


def supports_kernels(device: torch.device | str) -> Capability:
    """Whether `martingale` runs as kernels on this device, or the reason why it does not.

    On a CPU numba compiles the kernel; on a GPU of NVIDIA Triton compiles the kernels.  Elsewhere,
    and in code that `torch.compile` traces, PyTorch's operations return the same tokens.

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
    installed = None
    if find_spec("triton"):
        import triton

        installed = triton.__version__
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
