"""Hugging Face transformers: the verifier of assisted generation, its candidates, its texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otlp_lab.engines.assisted_texts import judge_texts
from otlp_lab.engines.candidate_generators import judge_candidates, shipped
from otlp_lab.engines.engine import Engine, Tables

ENSEMBLE = 0.5
"""The target's weight in the law that `assistant_ensemble_weight` aims at."""


def _load(ensemble: bool = False) -> Callable[..., Any]:
    import torch
    from transformers.generation import utils

    verify = utils._speculative_sampling
    takes = inspect.signature(verify).parameters
    if ensemble and "assistant_ensemble_weight" not in takes:
        raise AttributeError("no argument assistant_ensemble_weight")

    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        length = draft_tokens.shape[1]
        if ensemble:  # p is handed over mixed: its own part of that
            p[:, :length] = (p[:, :length] - (1.0 - ENSEMBLE) * q) / ENSEMBLE
        target, draft = (torch.from_numpy(law.clip(0.0)).log() for law in (p, q))
        # transformers 4 takes a flag that the last candidate ends the text, 5 does not
        flags: dict[str, Any] = {"is_done_candidate": False} if "is_done_candidate" in takes else {}
        flags |= {"assistant_ensemble_weight": ENSEMBLE} if ensemble else {}
        tokens, _ = verify(torch.from_numpy(draft_tokens), draft, length, target, **flags)
        return tokens[0]

    return rule


HUGGING_FACE = Engine(
    name="hugging-face",
    package="transformers",
    function="generation.utils._speculative_sampling",
    known=("4.56.", "4.57.", "5."),
    load=_load,
    beside=lambda samples, seed, rate, _: judge_candidates(shipped(seed), samples, seed, rate),
)

HUGGING_FACE_PROCESSORS = Engine(
    name="hugging-face-processors",
    package="transformers",
    function="generation.utils._speculative_sampling, and texts with logits processors on",
    known=("4.57.", "5."),
    load=_load,
    beside=judge_texts,
)


def _mixed(target: Tables, draft: Tables) -> Tables:
    """The mixture at every drafted place, and the target after the last."""
    mixed = [ENSEMBLE * p + (1.0 - ENSEMBLE) * q for p, q in zip(target, draft, strict=False)]
    return [*mixed[: len(target) - 1], target[-1]]


HUGGING_FACE_ENSEMBLE = Engine(
    name="hugging-face-ensemble",
    package="transformers",
    function=(
        f"generation.utils._speculative_sampling(assistant_ensemble_weight={ENSEMBLE}), which is "
        f"lossy: held to the law that it aims at, {ENSEMBLE} p + {1.0 - ENSEMBLE} q where tokens "
        "were drafted"
    ),
    known=("5.",),
    load=lambda: _load(ensemble=True),
    aims=_mixed,
)
