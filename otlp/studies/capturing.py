"""Capture the logits that a pair of models meets while the target writes.

A capture is made passage by passage, one a prompt, each in a capture file of its own beside the
final one (`parts_folder`).  Interrupted at any moment, what was written stays readable; started
again, it goes on with the next passage.  Each passage has its own random numbers, so the capture
is the same as if it had never been interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from otlp.data.captures import Capture, LogitArray, load, save
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.tree import TokenTree
from otlp.distribution import IntArray, invert_cdf
from otlp.errors import CaptureError, InvalidInputError

__all__ = ["capture", "capture_passage", "join", "parts_folder"]

FloatRows = npt.NDArray[np.float32]
ROOT = TokenTree(np.array([-1]), np.array([-1]))


def parts_folder(path: str | os.PathLike[str]) -> Path:
    """Folder that holds the finished passages while a capture is being made."""
    return Path(f"{os.fspath(path)}.parts")


def capture_passage(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompt: IntArray,
    steps: int,
    rng: np.random.Generator,
) -> Capture:
    """Decode from the target and keep the logits of both models at each step.

    Parameters
    ----------
    draft, target : HuggingFaceModel
        The target's `sampling` decides what is written; the logits are kept as they are.
    prompt : ndarray of int64, shape (T,)
    steps : int
        Rows, at least 1.
    rng : numpy.random.Generator

    Returns
    -------
    Capture
        float16, or float32 where a logit is too large for that.

    Raises
    ------
    InvalidInputError
        If prompt and steps do not fit into the context of a model.

    Notes
    -----
    One call of each model a row.
    """
    for model in (draft, target):
        if model.context_limit is not None and prompt.size + steps - 1 > model.context_limit:
            raise InvalidInputError(
                f"a prompt of {prompt.size} tokens and {steps} steps exceed the context of "
                f"{model.name}, {model.context_limit}: shorten the prompt or take fewer steps"
            )
        model.start(prompt)
    node = np.array([0])
    rows: tuple[list[FloatRows], list[FloatRows]] = ([], [])
    tokens: list[int] = []
    contexts = []
    for _ in range(steps):
        contexts.append(target.tokenizer.decode([*prompt.tolist(), *tokens]))
        for model, kept in zip((target, draft), rows, strict=True):
            kept.append(model.logits(ROOT, node)[0])
        law = target.distributions(ROOT, node)[0]
        tokens.append(int(invert_cdf(np.cumsum(law), rng.random())))
        for model in (draft, target):
            model.advance(ROOT, 0, tokens[-1])
    target_logits, draft_logits = _stored(*(np.stack(kept) for kept in rows))
    return Capture(
        target_logits=target_logits,
        draft_logits=draft_logits,
        target_model=target.name,
        draft_model=draft.name,
        tokenizer=f"{type(target.tokenizer).__name__}, {len(target.tokenizer)} tokens",
        source="text decoded from the target",
        synthetic=False,
        contexts=tuple(contexts),
        positions=prompt.size + np.arange(steps),
        next_tokens=np.array(tokens),
    )


def capture(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    path: str | os.PathLike[str],
    *,
    steps: int,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> Capture:
    """Write a capture, or go on with one that was interrupted.

    Parameters
    ----------
    draft, target : HuggingFaceModel
    prompts : sequence of ndarray of int64
    path : path-like
        The file to write.
    steps : int
        Rows for each prompt.
    seed : int
        Passage i draws from ``default_rng([seed, i])``.
    progress : callable, optional
        Called for each finished passage.

    Returns
    -------
    Capture
        What lies at `path`.

    Raises
    ------
    CaptureError
        If there is a file at `path`, a file cannot be written, or the interrupted capture was
        begun with other models, prompts or options.

    Notes
    -----
    The parts go when all are joined.  While it is interrupted, each part is a capture file.
    """
    if Path(path).exists():
        raise CaptureError(f"{os.fspath(path)}: is there already; choose another name or delete it")
    folder = parts_folder(path)
    _begin(folder, _plan(draft, target, prompts, steps, seed))
    parts = []
    for index, prompt in enumerate(prompts):
        part = folder / f"{index:05d}.safetensors"
        if not part.exists():
            save(
                capture_passage(draft, target, prompt, steps, np.random.default_rng([seed, index])),
                part,
            )
        parts.append(part)
        if progress is not None:
            progress()
    joined = join([load(part) for part in parts])
    save(joined, path)
    shutil.rmtree(folder)
    return joined


def join(captures: Sequence[Capture]) -> Capture:
    """Put captures of one pair of models into one, in order.

    Raises
    ------
    InvalidInputError
        If there are none, or they come from different models.
    """
    first, names = captures[0], {(one.target_model, one.draft_model) for one in captures}
    if len(names) > 1:
        raise InvalidInputError(f"captures of different models cannot be joined: {sorted(names)}")
    return Capture(
        # float16 rows become float32 if one of the captures needs it; no value changes
        target_logits=np.concatenate([one.target_logits for one in captures]),
        draft_logits=np.concatenate([one.draft_logits for one in captures]),
        target_model=first.target_model,
        draft_model=first.draft_model,
        tokenizer=first.tokenizer,
        source=first.source,
        synthetic=any(one.synthetic for one in captures),
        note=first.note,
        contexts=tuple(text for one in captures for text in one.contexts),
        positions=np.concatenate([one.positions for one in captures]),
        next_tokens=np.concatenate([one.next_tokens for one in captures]),
    )


def _stored(target: FloatRows, draft: FloatRows) -> tuple[LogitArray, LogitArray]:
    """Both in float16 if that can hold every logit, else as they are."""
    largest = max(float(np.abs(one[np.isfinite(one)]).max()) for one in (target, draft))
    if largest > float(np.finfo(np.float16).max):
        return target, draft
    return target.astype(np.float16), draft.astype(np.float16)


def _plan(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    steps: int,
    seed: int,
) -> dict[str, object]:
    """Everything that the passages depend on."""
    return {
        "target": target.name,
        "draft": draft.name,
        "sampling": str(target.sampling),
        "steps": steps,
        "seed": seed,
        "prompts": [prompt.tolist() for prompt in prompts],
    }


def _begin(folder: Path, plan: dict[str, object]) -> None:
    """Make the folder of parts, or see that the one that is there belongs to the same plan."""
    marker = folder / "plan.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if marker.exists():
            begun = json.loads(marker.read_text(encoding="utf-8"))
        else:
            begun = plan
            temporary = folder / ".plan"
            temporary.write_text(json.dumps(plan), encoding="utf-8")
            os.replace(temporary, marker)
    except (OSError, json.JSONDecodeError) as error:
        raise CaptureError(
            f"{folder}: cannot be used ({error}); choose a folder that exists and is writable, or "
            "delete this one"
        ) from error
    other = [key for key, value in plan.items() if begun.get(key) != value]
    if other:
        raise CaptureError(
            f"{folder}: was begun with other {', '.join(other)}; give the same again to go on, or "
            "delete the folder to begin anew"
        )
