"""Tests of texts of transformers' assisted generation with processors against plain decoding.

The distribution of plain decoding is computed from the scores of `generate` after every prefix, so
both sides use the engine's own processors.  Target and assistant are two tiny models with random
weights under the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from otlp.auditing.audited_rule import Progress, silent
from otlp.auditing.gtest import g_test
from otlp.auditing.report import Verdict
from otlp.distribution import FloatArray
from otlp_lab.engines.beside import SampleTests
from otlp_lab.engines.tiny_model import tiny_model

VOCAB_SIZE, LENGTH = 3, 3
PROMPT = (1, 2, 1)
MOST_TEXTS = 1_000

PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "temperature 0.5": {"temperature": 0.5},
    "top-k 2": {"top_k": 2},
    "top-p 0.8": {"top_p": 0.8},
    "min-p 0.3": {"min_p": 0.3},
    "typical-p 0.7": {"typical_p": 0.7},
    "repetition penalty 1.5": {"repetition_penalty": 1.5},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "two words forbidden": {"bad_words_ids": [[2], [0, 1]]},
    "a bias": {"sequence_bias": [[[0], 1.0], [[1, 2], -2.0]]},
    "temperature 0.7, top-k 2, repetition penalty 1.3": {
        "temperature": 0.7,
        "top_k": 2,
        "repetition_penalty": 1.3,
    },
}
"""Processors of `generate` that depend only on the text, and a combination of three."""

Write = Callable[[Any, Any, int, Mapping[str, Any]], Any]
"""Decodes texts of a target and an assistant under options: tokens of shape (texts, LENGTH)."""


@dataclass(frozen=True)
class ProcessedTexts(SampleTests):
    """Tests of an engine's texts under each processor.

    Attributes
    ----------
    tests : mapping of str to GTest
        Tests of texts of `LENGTH` tokens against plain decoding, by processors.
    """

    field, unit, wrong = "texts", "texts", Verdict.NOT_LOSSLESS

    @property
    def headline(self) -> str:
        """Source of the texts, and the expected distribution."""
        return (
            f"Texts of generate(assistant_model=...), {LENGTH} tokens over {VOCAB_SIZE}, {{verb}} "
            "plain decoding; by processors:"
        )


def assisted(target: Any, assistant: Any, samples: int, options: Mapping[str, Any]) -> Any:
    """Decode texts by assisted generation one by one; shape (samples, LENGTH)."""
    import torch

    prompt = torch.tensor([PROMPT])
    settings = {"max_new_tokens": LENGTH, "assistant_model": assistant}
    texts = [_generate(target, prompt, options, **settings) for _ in range(samples)]
    return torch.cat(texts)[:, len(PROMPT) :].numpy()


def judge_texts(
    samples: int,
    seed: int,
    rate: float,
    progress: Progress = silent,
    write: Write = assisted,
) -> tuple[ProcessedTexts]:
    """Test texts under each of `PROCESSORS`.

    Parameters
    ----------
    samples : int
        Number of texts per processor, at most 1,000; a text takes some hundredths of a second.
    seed : int
        Seed of the models and of torch's generator, whose state is restored.
    rate : float
        False-alarm rate of all tests together.
    progress : callable
        Called with a label and the share done.
    write : callable, optional
        Decodes the texts, default assisted generation.
    """
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad(), _quiet():
        torch.manual_seed(seed)
        target, assistant = tiny_model(VOCAB_SIZE), tiny_model(VOCAB_SIZE)
        tests = {}
        for done, (name, options) in enumerate(PROCESSORS.items()):
            progress(f"texts, {name}", done / len(PROCESSORS))
            texts = np.asarray(write(target, assistant, min(samples, MOST_TEXTS), options))
            cells = np.ravel_multi_index(texts.T, (VOCAB_SIZE,) * LENGTH)
            counts = np.bincount(cells, minlength=VOCAB_SIZE**LENGTH)
            tests[name] = g_test(counts, plain_law(target, options), rate / len(PROCESSORS))
        return (ProcessedTexts(tests),)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of `generate` about arguments passed to its own assistant."""
    logging = import_module("transformers").logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def plain_law(model: Any, options: Mapping[str, Any]) -> FloatArray:
    """Compute the distribution of texts of plain decoding, shape (V ** LENGTH,)."""
    import torch

    law = np.ones(1)
    for length in range(LENGTH):
        prefixes = torch.tensor(
            [(*PROMPT, *one) for one in product(range(VOCAB_SIZE), repeat=length)]
        )
        found = _generate(
            model, prefixes, options, max_new_tokens=1, output_scores=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        after = found.scores[0].double().softmax(dim=-1).numpy()
        law = (law[:, None] * after).ravel()
    return law


def _generate(model: Any, tokens: Any, options: Mapping[str, Any], **settings: Any) -> Any:
    import torch

    arguments = {"do_sample": True, "top_k": 0, "pad_token_id": 0, **options, **settings}
    return model.generate(tokens, attention_mask=torch.ones_like(tokens), **arguments)
