"""Capture of the logits of a pair of models while the target decodes text.

A capture has one passage per prompt.  Each passage is written to its own capture file in a folder
next to the final file (`parts_folder`).  After an interruption the written passages stay readable,
and a restart continues with the next passage.  Each passage has its own random numbers, so the
capture is the same as without interruptions.  The final file is written from the parts a few rows
at a time, so a capture may have any size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.checks import is_a, whole_number
from otlp.data.capture_file import read_capture_file, write
from otlp.data.captures import Capture, LogitArray, keep_top, load, save
from otlp.data.locked_folder import locked_folder
from otlp.data.whole_file import is_temporary, whole_file, writing_to
from otlp.decode.drafting import no_draft
from otlp.decode.loop import rounds, start
from otlp.decode.models.copying import network_and_shares
from otlp.decode.models.fingerprint import fingerprint
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model, Sampling
from otlp.decode.round import Round
from otlp.decode.tree import ROOT
from otlp.decode.verification import Autoregressive
from otlp.distribution import IntArray
from otlp.errors import CaptureError, InvalidInputError

FloatRows = npt.NDArray[np.float32]
FORMAT = "otlp capture 2"
"""Version of the plan file of an unfinished capture."""

PLAN = "plan.json"
"""Name of the plan file: the options of an unfinished capture."""

DECODED = "text decoded from the target"


def source_of(sampling: Sampling) -> str:
    """Return the `source` of a capture: how its text was decoded."""
    top_k = "" if sampling.top_k is None else f", top-k {sampling.top_k}"
    top_p = "" if sampling.top_p == 1.0 else f", top-p {sampling.top_p:g}"
    min_p = "" if sampling.min_p == 0.0 else f", min-p {sampling.min_p:g}"
    return f"{DECODED} at temperature {sampling.temperature:g}{top_k}{top_p}{min_p}"


def parts_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of the finished passages of an unfinished capture."""
    return Path(f"{os.fspath(path)}.parts")


def check_room(models: Sequence[Model], prompt: IntArray, tokens: int) -> None:
    """Raise InvalidInputError if a prompt and `tokens` new tokens exceed a model's context."""
    for model in models:
        if model.context_limit is not None and prompt.size + tokens - 1 > model.context_limit:
            raise InvalidInputError(
                f"a prompt of {prompt.size} tokens and {tokens} new tokens exceed the context of "
                f"{model.name}, {model.context_limit}: shorten the prompt or decode fewer tokens"
            )


def decode_target(
    draft: Model, target: Model, prompt: IntArray, steps: int, rng: np.random.Generator
) -> Iterator[Round]:
    """Decode from the target, one token per round; the draft follows.

    The text ends after `steps` tokens, or with an end token.
    """
    start(draft, target, prompt)
    plain = no_draft(), Autoregressive(), rng
    return rounds(draft, target, *plain, held=prompt.size, tokens=steps, ends=target.ends)


def capture_passage(
    draft: Model,
    target: HuggingFaceModel,
    prompt: IntArray,
    steps: int,
    rng: np.random.Generator,
) -> Capture:
    """Decode from the target and keep the logits of both models at each step.

    Parameters
    ----------
    draft : Model
    target : HuggingFaceModel
        The text is decoded with the target's `sampling`; logits do not depend on a sampling.
    prompt : ndarray of int64, shape (T,)
    steps : int
        Maximum number of rows, at least 1; the text also ends with an end token of the target.
    rng : numpy.random.Generator

    Returns
    -------
    Capture
        Logits in float16, or in float32 if a logit is too large for float16.

    Notes
    -----
    One call of each model per row.
    """
    rows: tuple[list[FloatRows], list[FloatRows]] = ([], [])
    tokens: list[int] = []
    contexts = []
    for played in decode_target(draft, target, prompt, steps, rng):
        # Without clean-up, each context starts with the previous one; see `Capture.passages`.
        text = [*prompt.tolist(), *tokens]
        contexts.append(target.tokenizer.decode(text, clean_up_tokenization_spaces=False))
        for model, kept in zip((target, draft), rows, strict=True):
            kept.append(model.logits(ROOT, np.array([0]))[0].astype(np.float32))
        tokens.append(played.token)
    target_logits, draft_logits = _as_float16(*(np.stack(kept) for kept in rows))
    return Capture(
        target_logits=target_logits,
        draft_logits=draft_logits,
        target_model=target.name,
        draft_model=draft.name,
        tokenizer=f"{type(target.tokenizer).__name__}, {len(target.tokenizer)} tokens",
        source=source_of(target.sampling),
        synthetic=False,
        contexts=tuple(contexts),
        positions=prompt.size + np.arange(len(tokens)),
        next_tokens=np.array(tokens),
    )


def capture(
    draft: Model,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    path: str | os.PathLike[str],
    *,
    steps: int,
    seed: int = 0,
    top_logprobs: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Capture:
    """Write a capture, or continue an interrupted capture.

    Parameters
    ----------
    draft : HuggingFaceModel, or Copying of one
    target : HuggingFaceModel
    prompts : sequence of ndarray of int64
    path : path-like
        Output file.
    steps : int
        Maximum number of rows per prompt; the text may end earlier.
    seed : int
        Random seed; passage i uses ``default_rng([seed, i])``.
    top_logprobs : int, optional
        Number of most likely tokens kept in each row, default all; see `captures.keep_top`.
    progress : callable, optional
        Called after each passage.

    Returns
    -------
    Capture
        The capture as loaded from `path` with `captures.load`.

    Raises
    ------
    CaptureError
        If there is a capture at `path`, another process is writing it, a file cannot be written,
        or the folder of parts belongs to a capture with other models, precisions, prompts or
        options, or does not belong to a capture.
    InvalidInputError
        If the draft has no network, `prompts` is empty, prompts and steps do not fit into the
        context of a model, or an option is not an integer of at least 1.  Nothing is written in
        this case.

    Notes
    -----
    The parts are deleted after they are joined; other files in their folder are kept.  Each part
    of an interrupted capture is a capture file.
    """
    path = Path(path)
    check_output(path)
    if not prompts:
        raise InvalidInputError("prompts must not be empty: give at least one")
    whole_number(steps, "steps")
    for prompt in prompts:
        check_room((draft, target), prompt, steps)
    if top_logprobs is not None:
        whole_number(top_logprobs, "top_logprobs")
    networks: tuple[Any, ...] = target, network_and_shares(draft)[0]
    is_a(networks[1], HuggingFaceModel, "the network of the draft")
    plan = {  # All values that the passages depend on.
        "format": FORMAT,
        "target": target.name,
        "draft": draft.name,
        "weights or tokenizer of the target": fingerprint(target),
        "weights or tokenizer of the draft": fingerprint(draft),
        "dtype": [str(model.model.dtype) for model in networks],
        "sampling": str(target.sampling),
        "steps": steps,
        "seed": seed,
        "ends": list(target.ends),
        "top_logprobs": top_logprobs,
        "prompts": [prompt.tolist() for prompt in prompts],
    }
    folder = parts_folder(path)
    parts = [folder / f"{index:05d}.safetensors" for index in range(len(prompts))]
    with locked_folder(folder, partial(_unusable, folder)):
        done = check_output(path)
        _begin(folder, plan)
        if done:  # interrupted after the capture was written and before the parts were removed
            return _finish(path, parts)
        for index, (prompt, part) in enumerate(zip(prompts, parts, strict=True)):
            if not part.exists():
                rng = np.random.default_rng([seed, index])
                passage = capture_passage(draft, target, prompt, steps, rng)
                save(passage if top_logprobs is None else keep_top(passage, top_logprobs), part)
            progress()
        passages = [read_capture_file(os.path.abspath(part), most=0) for part in parts]
        for part, rows in zip(parts, passages, strict=True):
            if _widths(rows) != _widths(passages[0]):
                raise CaptureError(
                    f"{part}: its rows have other numbers of tokens than the rows of "
                    f"{parts[0].name}; delete the wrong file and run the same command again"
                )
        with writing_to(path), whole_file(path) as temporary:
            write(temporary, passages)
        _remove(folder, parts)
        return load(path)


def check_output(path: Path) -> bool:
    """Raise CaptureError if the file exists; return True if only its parts are left to remove."""
    done = path.exists()
    if done and not (parts_folder(path) / PLAN).exists():
        raise CaptureError(f"{path}: already exists; choose another name or delete it")
    return done


def _widths(rows: Capture) -> list[tuple[int, int | None]]:
    """Return the vocabulary size and the number of kept tokens of both models."""
    both = rows.target_logits, rows.draft_logits
    return [(logits.shape[1], getattr(logits, "k", None)) for logits in both]


def _finish(path: str | os.PathLike[str], parts: Sequence[Path]) -> Capture:
    """Remove the parts of a finished capture after checking that they belong to it."""
    found = load(path)
    rows, positions = np.asarray(found.target_logits), np.asarray(found.positions)
    for index, part in enumerate(parts):
        if not part.exists():
            continue
        own = load(part)
        wanted = np.asarray(own.target_logits)
        begins = np.flatnonzero(positions == np.asarray(own.positions)[0])
        begins = begins[begins >= index]  # each earlier passage has at least one row
        if not any(np.array_equal(rows[at : at + len(wanted)], wanted) for at in begins):
            raise CaptureError(
                f"{os.fspath(path)}: already exists and was not made from the parts in "
                f"{part.parent}; move the file or the folder away"
            )
    _remove(parts[0].parent, parts)
    return found


def _as_float16(target: FloatRows, draft: FloatRows) -> tuple[LogitArray, LogitArray]:
    """Convert both to float16 if every logit fits, else return both unchanged."""
    largest = max(float(np.abs(one[np.isfinite(one)]).max()) for one in (target, draft))
    if largest > float(np.finfo(np.float16).max):
        return target, draft
    return target.astype(np.float16), draft.astype(np.float16)


def _unusable(folder: Path, error: Exception) -> CaptureError:
    if isinstance(error, BlockingIOError):
        return CaptureError(
            f"{folder}: another process is writing this capture: wait for it, or choose another "
            "output"
        )
    return CaptureError(
        f"{folder}: cannot be used ({error}); choose a folder that exists and is writable, or "
        "delete this folder"
    )


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Write the plan file, or check that the existing folder has the same plan."""
    marker = folder / PLAN
    try:
        if marker.exists():
            begun = json.loads(marker.read_text(encoding="utf-8"))
        elif any(not is_temporary(entry.name, marker) for entry in folder.iterdir()):
            begun = None
        else:
            with whole_file(marker) as temporary:
                temporary.write_text(json.dumps(plan), encoding="utf-8")
            begun = plan
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(folder, error) from error
    if not isinstance(begun, dict):
        raise CaptureError(
            f"{folder}: must be the folder of an interrupted capture with a {PLAN} of its options; "
            "choose another output, or move the folder away"
        )
    other = [key for key, value in plan.items() if begun.get(key) != value]
    if other:
        raise CaptureError(
            f"{folder}: was started with other {', '.join(other)}; give the same values to "
            "continue, or delete the folder to start again"
        )


def _remove(folder: Path, parts: Sequence[Path]) -> None:
    """Delete the files written by `capture`."""
    made = [*parts, folder / PLAN]
    for entry in sorted(folder.iterdir()):  # the plan last: it marks an unfinished removal
        if entry in made or any(is_temporary(entry.name, one) for one in made):
            entry.unlink()
