"""Where kernels of our own do what PyTorch's operations would, and if not why."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

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
        return _supports_triton(
            torch.cuda.current_device() if device.index is None else device.index
        )
    known = device.type == "cpu"
    return Capability(
        known, "" if known else f"no kernels are written for devices of type {device.type}"
    )


@cache
def _supports_triton(index: int) -> Capability:
    if torch.version.hip:
        return Capability(False, "the kernels have not been tried on GPUs of AMD")
    try:
        found = version("triton")
    except PackageNotFoundError:
        return Capability(False, "Triton is not installed: pip install triton")
    if int(found.split(".")[0]) < LEAST_TRITON:
        return Capability(False, f"Triton {found} is older than {LEAST_TRITON}.0: update it")
    major, minor = torch.cuda.get_device_capability(index)
    if major < LEAST_GPU:
        return Capability(
            False, f"the GPU has compute capability {major}.{minor}: Triton needs {LEAST_GPU}.0"
        )
    return Capability(True)
