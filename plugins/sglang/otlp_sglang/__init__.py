"""Several sampled paths a round in SGLang's EAGLE worker: drafted, and verified by otlp.

The plug-in replaces the kernel that SGLang calls under ``--speculative-use-rejection-sampling``,
where drafts are sampled and their distributions kept, and for ``--speculative-eagle-topk`` above 1
the functions that draft.
"""

from __future__ import annotations

import inspect
import pkgutil
import warnings
from importlib import metadata

KNOWN = ("0.5.23",)
"""Versions of SGLang whose source this was written for."""

_WORKER = "sglang.srt.speculative.eagle_worker_v2."

HOOKS = {
    "sglang.srt.speculative.eagle_utils.chain_speculative_sampling_triton": (
        "REPLACE",
        "verification.verify_sampled_paths",
        "predicts accept_index accept_token_num candidates retrive_index retrive_next_token "
        "retrive_next_sibling uniform_samples uniform_samples_for_final_sampling target_probs "
        "draft_probs threshold_single threshold_acc deterministic block_verification",
    ),
    f"{_WORKER}sample_draft_proposal": (
        "AROUND",
        "drafting.propose",
        "next_token_logits temperatures top_ks sampling_seed positions draft_step",
    ),
    f"{_WORKER}fast_sample": (
        "AROUND",
        "drafting.first_tokens",
        "probs num_samples sampling_seed positions draft_step",
    ),
    f"{_WORKER}select_top_k_tokens": (
        "AROUND",
        "drafting.go_on",
        "i topk_p topk_index hidden_states scores topk",
    ),
    f"{_WORKER}organize_draft_results": (
        "AROUND",
        "drafting.organize",
        "score_list token_list parents_list num_draft_token",
    ),
    f"{_WORKER}EagleDraftWorker.draft_forward": (
        "AROUND",
        "drafting.draft_forward",
        "self forward_batch",
    ),
    f"{_WORKER}EagleDraftWorker.__init__": (
        "AROUND",
        "drafting.start",
        "self server_args gpu_id nccl_port target_worker",
    ),
}
"""What is hooked: how, by which function, and the parameters that it must have."""


def register() -> None:
    """Hook drafting and verification; called by SGLang in each of its processes.

    Raises
    ------
    RuntimeError
        If a function of this SGLang takes other arguments.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    version = metadata.version("sglang")
    for target, (_, _, parameters) in HOOKS.items():
        found = inspect.signature(pkgutil.resolve_name(target)).parameters
        if list(found) != parameters.split():
            raise RuntimeError(
                f"otlp-sglang does not know {target} of SGLang {version} (known: "
                f"{', '.join(KNOWN)}): take the plug-in out, or set SGLANG_PLUGINS without otlp"
            )
    if version not in KNOWN:
        warnings.warn(
            f"otlp-sglang was not written for SGLang {version} (known: {', '.join(KNOWN)})",
            stacklevel=2,
        )
    for target, (kind, function, _) in HOOKS.items():
        hook = pkgutil.resolve_name(f"otlp_sglang.{function}")
        HookRegistry.register(target, hook, HookType[kind])
