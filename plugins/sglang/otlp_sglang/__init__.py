"""Verification of sampled paths in SGLang's EAGLE worker by `otlp.batched.verify_paths`.

The plug-in replaces the kernel that SGLang calls under ``--speculative-use-rejection-sampling``,
where drafts are sampled and their distributions kept.
"""

from __future__ import annotations

import inspect
import warnings
from importlib import metadata

KNOWN = ("0.5.23",)
"""Versions of SGLang whose source this was written for."""

TARGET = "sglang.srt.speculative.eagle_utils.chain_speculative_sampling_triton"

PARAMETERS = (
    "predicts",
    "accept_index",
    "accept_token_num",
    "candidates",
    "retrive_index",
    "retrive_next_token",
    "retrive_next_sibling",
    "uniform_samples",
    "uniform_samples_for_final_sampling",
    "target_probs",
    "draft_probs",
    "threshold_single",
    "threshold_acc",
    "deterministic",
    "block_verification",
)
"""Of the function that is replaced."""


def register() -> None:
    """Hook the verification; called by SGLang in each of its processes.

    Raises
    ------
    RuntimeError
        If this SGLang's kernel takes other arguments.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.speculative import eagle_utils

    from otlp_sglang.verification import verify_sampled_paths

    version = metadata.version("sglang")
    found = tuple(inspect.signature(eagle_utils.chain_speculative_sampling_triton).parameters)
    if found != PARAMETERS:
        raise RuntimeError(
            f"otlp-sglang does not know the rejection sampler of SGLang {version} (known: "
            f"{', '.join(KNOWN)}): take the plug-in out, or set SGLANG_PLUGINS without otlp"
        )
    if version not in KNOWN:
        warnings.warn(
            f"otlp-sglang was not written for SGLang {version} (known: {', '.join(KNOWN)})",
            stacklevel=2,
        )
    HookRegistry.register(TARGET, verify_sampled_paths, HookType.REPLACE)
