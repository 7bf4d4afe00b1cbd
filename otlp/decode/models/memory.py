"""Memory that a language model needs on a device, and detection of out-of-memory errors."""

from __future__ import annotations

import os
from typing import Any


def tokens_that_fit(model: Any) -> str:
    """Describe how many tokens fit in one call of a transformers model now.

    Returns an empty string if the amount of free memory is unknown.
    """
    import torch

    free = _free_bytes(model.device)
    if free is None:
        return ""
    config = model.config.get_text_config()
    size = torch.finfo(model.dtype).bits // 8
    entry = 2 * config.num_hidden_layers * config.hidden_size * size
    fits = free // (entry + config.vocab_size * (size + 4))
    return f", with {free / 2**20:.0f} MiB free: at most about {fits} tokens fit in one call"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a device, or the CPU, ran out of memory."""
    import torch

    # The CPU's allocator raises a plain RuntimeError.
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def _free_bytes(device: Any) -> int | None:
    """Return the free memory of a device in bytes; None if unknown."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
