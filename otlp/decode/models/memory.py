"""What a language model needs of a device's memory, and how to tell when that ran out."""

from __future__ import annotations

import os
from typing import Any


def tokens_that_fit(model: Any) -> str:
    """How many tokens some model of transformers would take in one call now, in words.

    Empty where the system does not say how much memory is free.
    """
    import torch

    free = _free_bytes(model.device)
    if free is None:
        return ""
    config = model.config.get_text_config()
    size = torch.finfo(model.dtype).bits // 8
    entry = 2 * config.num_hidden_layers * config.hidden_size * size
    fits = free // (entry + config.vocab_size * (size + 4))
    return f", with {free / 2**20:.0f} MiB free: at most some {fits} tokens fit in one call"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the CPU's allocator, ran out of memory."""
    import torch

    # the CPU's allocator raises a plain RuntimeError
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def _free_bytes(device: Any) -> int | None:
    """Free memory of a device; None where the system does not say."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
