"""Options and loading of models and prompts, for commands that run language models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from otlp.cli.options import Decorator, as_one, limit_option, several
from otlp.cli.output import progress
from otlp.cli.prompt_files import Prompt, read_prompts
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import TRAINED_PAIR, load_pair
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class Models:
    """The options that choose the models and the prompts; see `model_options`."""

    target: str
    draft: str
    prompts: str | None
    device: str
    dtype: str
    limit: int | None

    def record(self) -> dict[str, Any]:
        """Return the options for `write_result`."""
        return {
            "target": self.target,
            "draft": self.draft,
            "prompts": self.prompts or "built-in",
            "prompt_limit": self.limit,
            "device": self.device,
            "dtype": self.dtype,
        }

    def load(
        self, sampling: Sampling, texts: Sequence[Prompt] | None = None
    ) -> tuple[tuple[Model, HuggingFaceModel], list[IntArray]]:
        """Load draft and target and encode `texts`; None: the prompts, which are read first."""
        texts = read_prompts(self.prompts, self.limit) if texts is None else texts
        with progress("loading models", None):
            pair = open_pair(self.draft, self.target, self.device, self.dtype, sampling)
        return pair, encode_prompts(pair[1], texts)


prompts_option = click.option(
    "--prompts",
    type=click.Path(),
    help="Text file with one prompt per line; .json file with a list of strings; .jsonl or .ndjson "
    'file in which each line is a string, or an object with "prompt" or "messages" (a chat); '
    "humaneval; or humaneval:0-49 (problems 0 to 49). "
    "[default: ten built-in passages]",
)


def prompt_options(limit: int | None) -> Decorator:
    """Add the options for prompts and devices, passed with `target` and `draft` as `models`.

    Parameters
    ----------
    limit : int or None
        Default maximum number of prompts; None: all.
    """
    return several(
        prompts_option,
        click.option("--device", default="auto", help="Device: auto, cpu, cuda, cuda:1, ..."),
        click.option(
            "--dtype",
            default="auto",
            help="float32, bfloat16, float16, or auto (CPU: float32; other devices: as stored).",
        ),
        limit_option(limit),
        as_one("models", Models),
    )


def model_options(limit: int | None) -> Decorator:
    """Add the options of `prompt_options`, ``--target`` and ``--draft``."""
    return several(
        click.option(
            "--target",
            default=TRAINED_PAIR[0],
            help="Target model: a folder, a GGUF file, a name on the hub, smollm2 or gemma3-270m.",
        ),
        click.option(
            "--draft",
            default=TRAINED_PAIR[1],
            help="Draft model: a model as for --target; smollm2-draft; skip:7,8 (the target "
            "without layers 7 and 8) or skip:7,8@NAME; ngram (n-grams of the text so far) or "
            "ngram:FILE (n-grams of the text so far and of FILE); lookup (prompt lookup); a "
            "mixture such as 0.7*trained:draft+0.3*ngram; or copying:DRAFT (DRAFT mixed with "
            "prompt lookup).",
        ),
        prompt_options(limit),
    )


def open_pair(
    draft: str, target: str, device: str, dtype: str, sampling: Sampling
) -> tuple[Model, HuggingFaceModel]:
    """Load draft and target without progress bars of transformers."""
    silence_transformers()
    return load_pair(draft, target, device=device, dtype=dtype, sampling=sampling)


def silence_transformers() -> None:
    """Disable progress bars and warnings of transformers; call this before models are loaded."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # Read by tqdm when transformers imports tqdm.
    try:
        from transformers.utils import logging
    except ImportError:
        pass  # Loading raises with the install command.
    else:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        logging.set_verbosity_error()  # type: ignore[no-untyped-call, unused-ignore]


def encode_prompts(model: HuggingFaceModel, prompts: Sequence[Prompt]) -> list[IntArray]:
    """Encode texts, and chats with the tokenizer's template; errors contain the prompt number."""
    encoded = []
    for number, one in enumerate(prompts, start=1):
        try:
            tokens = model.encode(one) if isinstance(one, str) else model.encode_chat(one)
        except InvalidInputError as error:
            raise InvalidInputError(f"prompt {number}: {error}") from error
        if model.context_limit is not None and tokens.size >= model.context_limit:
            raise InvalidInputError(
                f"prompt {number} must be shorter than the context of {model.name}, "
                f"{model.context_limit} tokens, got {tokens.size}: shorten the prompt"
            )
        encoded.append(tokens)
    return encoded
