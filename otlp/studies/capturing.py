"""Capture the logits that a pair of models meets while the target writes.

A capture is made passage by passage, one a prompt, each in a capture file of its own beside the
final one (`parts_folder`).  Interrupted at any moment, what was written stays readable; started
again, it goes on with the next passage.  Each passage has its own random numbers, so the capture
is the same as if it had never been interrupted.  In the end the rows go from file to file, a few
at a time: a capture may be of any size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.checks import whole_number
from otlp.data.capture_file import read_capture_file, write
from otlp.data.captures import Capture, LogitArray, keep_top, load, save
from otlp.data.whole_file import is_temporary, locked, whole_file, writing_to
from otlp.decode.drafting import no_draft
from otlp.decode.loop import rounds, start
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
"""Of what is written for a capture that is begun."""

PLAN = "plan.json"


DECODED = "text decoded from the target"


def source_of(sampling: Sampling) -> str:
    """Say in a capture's `source` how its text was written."""
    top_k = "" if sampling.top_k is None else f", top-k {sampling.top_k}"
    top_p = "" if sampling.top_p == 1.0 else f", top-p {sampling.top_p:g}"
    min_p = "" if sampling.min_p == 0.0 else f", min-p {sampling.min_p:g}"
    return f"{DECODED} at temperature {sampling.temperature:g}{top_k}{top_p}{min_p}"


def parts_folder(path: str | os.PathLike[str]) -> Path:
    """Folder that holds the finished passages while a capture is being made."""
    return Path(f"{os.fspath(path)}.parts")


def check_room(models: Sequence[Model], prompt: IntArray, tokens: int) -> None:
    """Refuse a text that goes on so far after a prompt that it does not fit into a context.

    Raises
    ------
    InvalidInputError
    """
    for model in models:
        if model.context_limit is not None and prompt.size + tokens - 1 > model.context_limit:
            raise InvalidInputError(
                f"a prompt of {prompt.size} tokens and {tokens} more exceed the context of "
                f"{model.name}, {model.context_limit}: shorten the prompt or write fewer"
            )


def written(
    draft: Model, target: Model, prompt: IntArray, steps: int, rng: np.random.Generator
) -> Iterator[Round]:
    """Let the target write, a token a round; both models stand before it.

    The text ends after `steps` tokens, or with an end token.
    """
    start(draft, target, prompt)
    plain = no_draft(), Autoregressive(), rng
    return rounds(draft, target, *plain, held=prompt.size, tokens=steps, ends=target.ends)


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
        Rows, at least 1; fewer where the text ends with an end token of the target's.
    rng : numpy.random.Generator

    Returns
    -------
    Capture
        float16, or float32 where a logit is too large for that.

    Raises
    ------
    InvalidInputError
        If `steps` is less than 1, or prompt and steps do not fit into the context of a model.

    Notes
    -----
    One call of each model a row.
    """
    whole_number(steps, "steps")
    check_room((draft, target), prompt, steps)
    rows: tuple[list[FloatRows], list[FloatRows]] = ([], [])
    tokens: list[int] = []
    contexts = []
    for played in written(draft, target, prompt, steps, rng):
        contexts.append(target.tokenizer.decode([*prompt.tolist(), *tokens]))
        for model, kept in zip((target, draft), rows, strict=True):
            kept.append(model.logits(ROOT, np.array([0]))[0])
        tokens.append(played.token)
    target_logits, draft_logits = _stored(*(np.stack(kept) for kept in rows))
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
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    path: str | os.PathLike[str],
    *,
    steps: int,
    seed: int = 0,
    top_logprobs: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Capture:
    """Write a capture, or go on with one that was interrupted.

    Parameters
    ----------
    draft, target : HuggingFaceModel
    prompts : sequence of ndarray of int64
    path : path-like
        The file to write.
    steps : int
        Rows for each prompt, or fewer where its text ends.
    seed : int
        Passage i draws from ``default_rng([seed, i])``.
    top_logprobs : int, optional
        Keep so many of the likeliest tokens of each row only; see `captures.keep_top`.
    progress : callable, optional
        Called for each finished passage.

    Returns
    -------
    Capture
        What `captures.load` makes of `path`.

    Raises
    ------
    CaptureError
        If there is a capture at `path`, another process is writing it, a file cannot be written,
        or the folder of parts is of a capture with other models, precisions, prompts or options,
        or of none.
    InvalidInputError
        If there is no prompt, prompts and steps do not fit into the context of a model, or an
        option is no whole number of at least 1; then nothing is written.

    Notes
    -----
    The parts go when all are joined; files of another's making in their folder stay.  While it is
    interrupted, each part is a capture file.
    """
    check_output(Path(path))
    if not prompts:
        raise InvalidInputError("prompts is empty: give at least one")
    whole_number(steps, "steps")
    for prompt in prompts:
        check_room((draft, target), prompt, steps)
    if top_logprobs is not None:
        whole_number(top_logprobs, "top_logprobs")
    plan = _plan(draft, target, prompts, steps, seed, top_logprobs)
    with _alone(parts_folder(path)):
        return _capture(draft, target, prompts, Path(path), plan, progress)


def _capture(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    path: Path,
    plan: dict[str, Any],
    progress: Callable[[], None],
) -> Capture:
    """Write the passages that are not there yet, and then the capture."""
    folder, done, top_logprobs = parts_folder(path), check_output(path), plan["top_logprobs"]
    _begin(folder, plan)
    parts = [folder / f"{index:05d}.safetensors" for index in range(len(prompts))]
    if done:  # interrupted between the last file and the end
        return _finish(path, parts)
    for index, (prompt, part) in enumerate(zip(prompts, parts, strict=True)):
        if not part.exists():
            rng = np.random.default_rng([plan["seed"], index])
            passage = capture_passage(draft, target, prompt, plan["steps"], rng)
            kept = passage if top_logprobs is None else keep_top(passage, top_logprobs)
            save(kept, part)
        progress()
    passages = [read_capture_file(os.path.abspath(part), most=0) for part in parts]
    for part, rows in zip(parts, passages, strict=True):
        if _widths(rows) != _widths(passages[0]):
            raise CaptureError(
                f"{part}: its rows have other numbers of tokens than those of {parts[0].name}; "
                "delete what is wrong, and give the same again"
            )
    with writing_to(path), whole_file(path) as temporary:
        write(temporary, passages)
    _remove(folder, parts)
    return load(path)


def check_output(path: Path) -> bool:
    """Refuse a file that is there; but say whether it is a capture that lacks its end alone."""
    done = path.exists()
    if done and not (parts_folder(path) / PLAN).exists():
        raise CaptureError(f"{path}: is there already; choose another name or delete it")
    return done


def _widths(rows: Capture) -> list[tuple[int, int | None]]:
    """How many tokens the rows of both models are over, and how many were kept."""
    both = rows.target_logits, rows.draft_logits
    return [(logits.shape[1], getattr(logits, "k", None)) for logits in both]


def _plan(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    prompts: Sequence[IntArray],
    steps: int,
    seed: int,
    top_logprobs: int | None,
) -> dict[str, Any]:
    """All that the passages depend on."""
    return {
        "format": FORMAT,
        "target": target.name,
        "draft": draft.name,
        "weights or tokenizer of the target": fingerprint(target),
        "weights or tokenizer of the draft": fingerprint(draft),
        "dtype": [str(model.model.dtype) for model in (target, draft)],
        "sampling": str(target.sampling),
        "steps": steps,
        "seed": seed,
        "ends": list(target.ends),
        "top_logprobs": top_logprobs,
        "prompts": [prompt.tolist() for prompt in prompts],
    }


def _finish(path: str | os.PathLike[str], parts: Sequence[Path]) -> Capture:
    """Remove the parts of a capture that is there, if they are its own."""
    found = load(path)
    rows, positions = np.asarray(found.target_logits), np.asarray(found.positions)
    for index, part in enumerate(parts):
        if not part.exists():
            continue
        own = load(part)
        wanted = np.asarray(own.target_logits)
        begins = np.flatnonzero(positions == np.asarray(own.positions)[0])
        begins = begins[begins >= index]  # each passage before has a row at least
        if not any(np.array_equal(rows[at : at + len(wanted)], wanted) for at in begins):
            raise CaptureError(
                f"{os.fspath(path)}: is there already, and is not made of the parts in "
                f"{part.parent}; move one of them away"
            )
    _remove(parts[0].parent, parts)
    return found


def _stored(target: FloatRows, draft: FloatRows) -> tuple[LogitArray, LogitArray]:
    """Both in float16 if that can hold every logit, else as they are."""
    largest = max(float(np.abs(one[np.isfinite(one)]).max()) for one in (target, draft))
    if largest > float(np.finfo(np.float16).max):
        return target, draft
    return target.astype(np.float16), draft.astype(np.float16)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from the folder of parts, which goes in the end if it is empty.

    Raises
    ------
    CaptureError
        If another is at it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        _check_alone(folder, held)
        try:
            yield
        finally:
            with suppress(OSError):  # something is in it
                folder.rmdir()
    finally:
        os.close(held)


def _check_alone(folder: Path, opened: int) -> None:
    with suppress(FileNotFoundError):  # it was removed with the end of a capture meanwhile
        if locked(opened) and os.path.samestat(os.fstat(opened), os.stat(folder)):
            return
    raise CaptureError(
        f"{folder}: another process is writing this capture: wait for it, or choose another output"
    )


def _unusable(folder: Path, error: Exception) -> CaptureError:
    return CaptureError(
        f"{folder}: cannot be used ({error}); choose a folder that exists and is writable, or "
        "delete this one"
    )


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder of parts, or see that the one that is there belongs to the same plan."""
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
            f"{folder}: is not of an interrupted capture, which has a {PLAN} that says what was "
            "begun; choose another output, or move the folder away"
        )
    other = [key for key, value in plan.items() if begun.get(key) != value]
    if other:
        raise CaptureError(
            f"{folder}: was begun with other {', '.join(other)}; give the same again to go on, or "
            "delete the folder to begin anew"
        )


def _remove(folder: Path, parts: Sequence[Path]) -> None:
    """Delete what `capture` wrote."""
    made = [*parts, folder / PLAN]
    for entry in sorted(folder.iterdir()):  # the plan last, so that an interrupted end is known
        if entry in made or any(is_temporary(entry.name, one) for one in made):
            entry.unlink()
