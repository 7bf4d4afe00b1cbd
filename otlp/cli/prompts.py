"""What the commands that run language models share: models, prompts, numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from otlp.data.captures import builtin
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import TRAINED_PAIR, load_pair
from otlp.decode.models.model import Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError

__all__ = ["encode_prompts", "model_options", "numbers", "open_pair", "read_prompts"]

Command = TypeVar("Command", bound=Callable[..., Any])


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """Callback that parses "0.2,1" to (0.2, 1.0)."""
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 0.2,1") from None


def model_options(command: Command) -> Command:
    """Add the options that choose the models and the prompts."""
    for option in (
        click.option(
            "--dtype",
            default="auto",
            show_default=True,
            help="float32, bfloat16 or float16; auto: float32 on the CPU, as stored elsewhere.",
        ),
        click.option(
            "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1; auto."
        ),
        click.option(
            "--prompts",
            "prompt_file",
            type=click.Path(),
            help="A prompt a line; .json: a list of strings; .jsonl: a string, or an object with "
            '"prompt", a line. [default: passages of the built-in capture]',
        ),
        click.option("--draft", default=TRAINED_PAIR[1], show_default=True),
        click.option(
            "--target",
            default=TRAINED_PAIR[0],
            show_default=True,
            help="A model folder or a name on the hub.",
        ),
    ):
        command = option(command)
    return command


def open_pair(
    draft: str, target: str, device: str, dtype: str, sampling: Sampling
) -> tuple[HuggingFaceModel, HuggingFaceModel]:
    """Load draft and target without the loader's own progress bars."""
    try:
        from transformers.utils import logging
    except ImportError:
        pass  # load_pair says what to install
    else:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        logging.set_verbosity_error()  # type: ignore[no-untyped-call, unused-ignore]
    return load_pair(draft, target, device=device, dtype=dtype, sampling=sampling)


def read_prompts(path: str | None, most: int | None) -> list[str]:
    """Read at most so many prompts, by default those of the built-in capture.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, is not of its kind, or holds no prompt.
    """
    prompts = _passages() if path is None else _read(Path(path))
    if not prompts:
        raise InvalidInputError(f"{path} holds no prompt: write one a line")
    return prompts[:most]


def encode_prompts(model: HuggingFaceModel, prompts: list[str]) -> list[IntArray]:
    """Encode prompts; an error names the prompt."""
    encoded = []
    for number, text in enumerate(prompts, start=1):
        tokens = model.encode(text)
        if model.context_limit is not None and tokens.size >= model.context_limit:
            raise InvalidInputError(
                f"prompt {number} has {tokens.size} tokens and the context of {model.name} is "
                f"{model.context_limit}: shorten the prompt"
            )
        encoded.append(tokens)
    return encoded


def _passages() -> list[str]:
    """The context at the first row of each passage: where the position does not go on."""
    capture = builtin()
    rows = range(len(capture))
    return [
        capture.contexts[row]
        for row in rows
        if row == 0 or capture.positions[row] != capture.positions[row - 1] + 1
    ]


def _read(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError(f"cannot read the prompts {path}: {reason}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if path.suffix not in (".json", ".jsonl"):
        return lines
    try:
        found = json.loads(text) if path.suffix == ".json" else [json.loads(x) for x in lines]
        prompts = [one["prompt"] if isinstance(one, dict) else one for one in found]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{path} is no {path.suffix} file of prompts ({error}): strings, or objects with "
            '"prompt"'
        ) from error
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise InvalidInputError(f"{path} holds a prompt that is no string: write strings")
    return prompts
