"""What the commands that run language models share: the models, the prompts, their options."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp.cli.output import progress
from otlp.data.captures import builtin
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
    prompt_file: str | None
    device: str
    dtype: str
    limit: int | None

    def open(self, sampling: Sampling) -> tuple[Model, HuggingFaceModel]:
        """Load draft and target."""
        with progress("loading models", None):
            return open_pair(self.draft, self.target, self.device, self.dtype, sampling)

    def said(self) -> dict[str, Any]:
        """What was chosen, for `write_result`."""
        return {
            "target": self.target,
            "draft": self.draft,
            "prompts": self.prompt_file or "built-in",
            "prompt_limit": self.limit,
            "device": self.device,
            "dtype": self.dtype,
        }

    def texts(self) -> list[str]:
        """Read the prompts, by default those of the built-in capture."""
        return read_prompts(self.prompt_file, self.limit)


prompts_option = click.option(
    "--prompts",
    "prompt_file",
    type=click.Path(),
    help="A prompt a line; .json: a list of strings; .jsonl: a string, or an object with "
    '"prompt", a line. [default: passages of the built-in capture]',
)


def limit_option(default: int | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--limit``, None where all prompts are taken."""
    return click.option(
        "--limit",
        type=click.IntRange(1),
        default=default,
        show_default="all" if default is None else True,
        help="How many prompts.",
    )


def prompt_options(limit: int | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that choose prompts and where models run; `target` and `draft` join them.

    Passed as one `models`.

    Parameters
    ----------
    limit : int or None
        How many prompts by default; None: all.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def decorated(**options: Any) -> None:
            chosen = {field.name: options.pop(field.name) for field in fields(Models)}
            command(models=Models(**chosen), **options)

        made: Callable[..., None] = decorated
        for option in (
            limit_option(limit),
            click.option(
                "--dtype",
                default="auto",
                help="float32, bfloat16 or float16; auto: float32 on the CPU, as stored elsewhere.",
            ),
            click.option("--device", default="auto", help="cpu, cuda, cuda:1; auto."),
            prompts_option,
        ):
            made = option(made)
        return made

    return decorate


def model_options(limit: int | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `prompt_options`, and those that choose the models."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        draft = click.option(
            "--draft",
            default=TRAINED_PAIR[1],
            help="A model; smollm2-draft; ngram or ngram:FILE, counted in the text or a file too; "
            "lookup; or a mixture such as 0.7*trained:draft+0.3*ngram.",
        )
        target = click.option(
            "--target",
            default=TRAINED_PAIR[0],
            help="A model folder, a GGUF file, a name on the hub, or smollm2.",
        )
        return target(draft(prompt_options(limit)(command)))

    return decorate


def open_pair(
    draft: str, target: str, device: str, dtype: str, sampling: Sampling
) -> tuple[Model, HuggingFaceModel]:
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
    if path is None:
        return [first for first, _ in passages()][:most]
    prompts = _read(Path(path))
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


def passages() -> list[tuple[str, str]]:
    """Each passage of the built-in capture: the text before its first row and before its last."""
    capture = builtin()
    starts = np.flatnonzero(np.diff(capture.passages, prepend=0))
    ends = np.flatnonzero(np.diff(capture.passages, append=0))
    contexts = capture.contexts
    return [(contexts[int(a)], contexts[int(b)]) for a, b in zip(starts, ends, strict=True)]


def _read(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError(f"cannot read the prompts {path}: {reason}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if path.suffix not in (".json", ".jsonl"):
        return lines
    try:
        found = json.loads(text) if path.suffix == ".json" else [json.loads(x) for x in lines]
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is no {path.suffix} file ({error})") from error
    if not isinstance(found, list):
        raise InvalidInputError(
            f"{path} holds one {type(found).__name__}: a .json file of prompts is a list of "
            "strings; an object a line makes a .jsonl file"
        )
    prompts: list[str] = []
    for number, one in enumerate(found, start=1):
        prompt = one.get("prompt") if isinstance(one, dict) else one
        if not isinstance(prompt, str):
            raise InvalidInputError(
                f"{path}: prompt {number} is {one!s:.60}: write a string, or an object with the "
                'string "prompt"'
            )
        prompts.append(prompt)
    return prompts
