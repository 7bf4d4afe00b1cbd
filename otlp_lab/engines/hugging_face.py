"""Hugging Face transformers: verifier, candidate generators and texts of assisted generation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otlp_lab.engines.assisted_texts import judge_texts
from otlp_lab.engines.candidate_generators import judge_candidates, shipped
from otlp_lab.engines.engine import Engine, Tables

ENSEMBLE = 0.5
"""Value of `assistant_ensemble_weight`: the target's weight in the mixture with the draft."""


def _load(ensemble: bool = False) -> Callable[..., Any]:
    import torch
    from transformers.generation import utils

    verify = utils._speculative_sampling
    names = inspect.signature(verify).parameters
    if ensemble and "assistant_ensemble_weight" not in names:
        raise AttributeError("no argument assistant_ensemble_weight")

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        length = draft_tokens.shape[1]
        if ensemble:  # p is the mixture: recover the target's distribution
            p[:, :length] = (p[:, :length] - (1.0 - ENSEMBLE) * q) / ENSEMBLE
        target, draft = (torch.from_numpy(law.clip(0.0)).log() for law in (p, q))
        # transformers 4 has a flag for candidates that end the text, transformers 5 does not.
        flags: dict[str, Any] = {"is_done_candidate": False} if "is_done_candidate" in names else {}
        flags |= {"assistant_ensemble_weight": ENSEMBLE} if ensemble else {}
        tokens, _ = verify(torch.from_numpy(draft_tokens), draft, length, target, **flags)
        return tokens[0]

    return rule


def _mixed(target: Tables, draft: Tables) -> Tables:
    """Return the mixture at all drafted positions, and the target after the last."""
    mixed = [ENSEMBLE * p + (1.0 - ENSEMBLE) * q for p, q in zip(target, draft, strict=False)]
    return [*mixed[: len(target) - 1], target[-1]]


ENGINES = (
    Engine(
        name="hugging-face",
        package="transformers",
        function="generation.utils._speculative_sampling",
        known=("4.56.", "4.57.", "5."),
        load=_load,
        sample_tests=lambda count, seed, rate, _: judge_candidates(
            shipped(seed), count, seed, rate
        ),
    ),
    Engine(
        name="hugging-face-ensemble",
        package="transformers",
        function=(
            f"generation.utils._speculative_sampling(assistant_ensemble_weight={ENSEMBLE}), which "
            f"is lossy: audited against its own distribution, {ENSEMBLE} p + {1.0 - ENSEMBLE} q "
            "where tokens were drafted"
        ),
        known=("5.",),
        load=lambda: _load(ensemble=True),
        expected_tables=_mixed,
    ),
    Engine(
        name="hugging-face-processors",
        package="transformers",
        function="generation.utils._speculative_sampling, and texts with logits processors on",
        known=("4.57.", "5."),
        load=_load,
        sample_tests=judge_texts,
    ),
)
