"""Tests of candidate generators of transformers: drafts must follow the returned q.

The verifier uses the softmax of a generator's returned logits as the distribution of its drafts.
Pairs of tokens are drafted at one prefix by a tiny model with random weights, and tested against
this distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy

from otlp.auditing.gtest import GTest, g_test
from otlp.auditing.report import Verdict
from otlp_lab.engines.beside import SampleTests
from otlp_lab.engines.tiny_model import tiny_model

VOCAB_SIZE = 6
PREFIX = (1, 2, 3)
MOST_SAMPLES = 20_000
WARPERS: Mapping[str, Mapping[str, Any]] = {
    "temperature 1": {},
    "temperature 0.5": {"temperature": 0.5},
    "temperature 0.5, top-k 3": {"temperature": 0.5, "top_k": 3},
}

Draw = Callable[[int, Mapping[str, Any]], tuple[Any, Any]]
"""Drafts B rows after `PREFIX` under warpers: tokens (B, L + 2), returned logits (B, 2, V)."""


@dataclass(frozen=True)
class CandidateReport(SampleTests):
    """Tests of the drafts of a candidate generator against its returned q.

    Attributes
    ----------
    generator : str
        Name of the class.
    tests : mapping of str to GTest
        Tests of drafted pairs against the softmax of the returned logits, by warpers.
    """

    generator: str

    field, unit, wrong = "candidate_generators", "drafts", Verdict.DRAFTS_DIFFER

    @property
    def headline(self) -> str:
        """Name of the generator, and the expected distribution."""
        return f"Candidate generator {self.generator}: drafts {{verb}} the q that it returns."


def judge_candidates(
    draws: Mapping[str, Draw], samples: int, seed: int, rate: float
) -> tuple[CandidateReport, ...]:
    """Test candidate generators.

    Parameters
    ----------
    draws : mapping of str to callable
        Generators by name.
    samples : int
        Number of drafted pairs for each of `WARPERS`, at most 20,000.
    seed : int
        Seed of torch's generator, whose state is restored.
    rate : float
        False-alarm rate of all tests together.
    """
    import torch

    each = rate / (len(draws) * len(WARPERS))
    samples = min(samples, MOST_SAMPLES)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return tuple(
            CandidateReport(
                {what: _test(*draw(samples, warpers), each) for what, warpers in WARPERS.items()},
                name,
            )
            for name, draw in draws.items()
        )


def _test(tokens: Any, logits: Any, rate: float) -> GTest:
    """Test drafted pairs jointly, with the returned q of both tokens."""
    pairs = tokens[:, len(PREFIX) :].numpy()
    returned = logits.double().numpy()
    q = scipy.special.softmax(returned, axis=-1)
    counts = np.bincount(pairs @ (VOCAB_SIZE, 1), minlength=VOCAB_SIZE**2)
    law = np.zeros((VOCAB_SIZE, VOCAB_SIZE))
    law[:, 0] = q[:, 0].mean(axis=0)  # q after a first token that was never drafted is unknown
    for token in np.unique(pairs[:, 0]):
        law[token] = law[token, 0] * q[pairs[:, 0] == token, 1].mean(axis=0)
    return g_test(counts, (law / law.sum()).ravel(), rate)


def shipped(seed: int) -> dict[str, Draw]:
    """Return the generators of the installed transformers that work with a tiny model."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        draws = {"AssistedCandidateGenerator": _assisted()}
        # transformers 4 does not have this generator.
        if hasattr(_generators(), "SinglePositionMultiTokenCandidateGenerator"):
            draws["SinglePositionMultiTokenCandidateGenerator"] = _single_position()
    return draws


def _generators() -> Any:
    return import_module("transformers.generation.candidate_generator")


def _config(warpers: Mapping[str, Any]) -> Any:
    settings = {"do_sample": True, "min_length": 0, "max_length": 99, "top_k": 0, "pad_token_id": 0}
    return import_module("transformers").GenerationConfig(**{**settings, **warpers})


def _assisted() -> Draw:
    import torch

    model = tiny_model(VOCAB_SIZE)

    def draw(samples: int, warpers: Mapping[str, Any]) -> Any:
        tokens = torch.tensor([PREFIX] * samples)
        inputs = {"attention_mask": torch.ones_like(tokens)}
        made = _generators().AssistedCandidateGenerator(tokens, model, _config(warpers), inputs)
        return made.get_candidates(tokens)

    return draw


def _single_position() -> Draw:
    import torch

    class Gemma4AssistantTable:
        """Next-token logits by the last token; the generator requires this class name."""

        device = torch.device("cpu")
        generation_config = _config({"num_assistant_tokens": 2})

        def __call__(self, inputs_embeds: Any, **_: Any) -> Any:
            logits, hidden = inputs_embeds.chunk(2, dim=-1)
            return SimpleNamespace(logits=logits, last_hidden_state=hidden)

    table = torch.nn.Embedding(VOCAB_SIZE, VOCAB_SIZE)

    def draw(samples: int, warpers: Mapping[str, Any]) -> Any:
        tokens = torch.tensor([PREFIX] * samples)
        generator = _generators().SinglePositionMultiTokenCandidateGenerator
        outputs = SimpleNamespace(hidden_states=[table(tokens)], shared_kv_states={})
        made = generator(Gemma4AssistantTable(), table, _config(warpers))
        return made.get_candidates(tokens, {}, outputs, False, 0)

    return draw
