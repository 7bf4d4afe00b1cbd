"""Text that the target writes after each prompt, with progress."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otlp.cli.output import progress, warn
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model
from otlp.distribution import IntArray
from otlp_lab.design import WrittenText
from otlp_lab.design.written_texts import long_texts, write_text


def target_texts(
    pair: tuple[Model, HuggingFaceModel],
    prompts: Sequence[IntArray],
    tokens: int,
    longest: int,
    least: int,
    seed: int,
) -> tuple[list[WrittenText], list[IntArray]]:
    """Let the target write after each prompt; the texts longer than a path, and their prompts.

    Raises
    ------
    InvalidInputError
        If fewer than `least` are.
    """
    written = []
    with progress("writing text", len(prompts)) as step:
        for index, prompt in enumerate(prompts):
            rng = np.random.default_rng([seed, index])
            written.append(write_text(*pair, prompt, tokens, rng))
            step("writing text")
    texts = long_texts(written, longest, least, warn)
    return texts, [at for at, one in zip(prompts, written, strict=True) if len(one) > longest]
