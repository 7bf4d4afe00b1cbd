"""Captures from what a serving engine logged: ids and log-probabilities of the likeliest tokens.

An engine has one model, so there are two logs, of the same requests in the same order: one of the
target and one of the draft, each asked for the log-probabilities of the same text.  A log is a file
of JSON lines, one a request, in one of the forms that vLLM and engines like it return:

- ``prompt_logprobs``: a list with, for each token of the prompt, null or an object that gives
  ``{"logprob": ...}``, or a number, by token id.  With vLLM, ask for ``prompt_logprobs=k``.
- ``choices[0].logprobs.top_logprobs``: a list with, for each token, an object that gives numbers
  by ``"token_id:123"``.  With vLLM, ask for ``logprobs=k, return_tokens_as_token_ids=True``.

Engines add the token that was chosen where it is not among the k: it is dropped, since how likely
the tokens between are is not known.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from otlp.checks import whole_number
from otlp.data.tensor_file import open_file
from otlp.data.top_capture import TopCapture
from otlp.data.top_rows import ROUNDING, TopRow, check_rows, check_vocab_size, stack
from otlp.errors import CaptureError, InvalidInputError

LEAST = -1e4
"""Engines write -9999 or so where a token is masked, since JSON has no infinity."""


def from_logprobs(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    *,
    k: int,
    vocab_size: int,
    target_model: str = "unknown",
    draft_model: str = "unknown",
    tokenizer: str = "unknown",
    source: str = "logs of a serving engine",
) -> TopCapture:
    """Read the logs of a target and of a draft over the same text.

    Parameters
    ----------
    target, draft : path-like
        Files of JSON lines, in the forms above: log-probabilities before any sampling option.
    k : int
        How many log-probabilities the engine was asked for.
    vocab_size : int
        V, of both models.
    target_model, draft_model, tokenizer, source : str, optional
        Labels of the capture.

    Returns
    -------
    TopCapture
        A row for each token that both logs have.  `positions` counts the tokens before it in its
        request; next tokens are unknown.

    Raises
    ------
    CaptureError
        If a file cannot be read, or a line (which is named) cannot be the k likeliest of V.
    InvalidInputError
        If `k` or `vocab_size` is no whole number of at least 1.

    Notes
    -----
    The mass of the rest is what the k leave of 1, and 1e-6, to which sums of engines are known.

    Examples
    --------
    >>> import json, tempfile
    >>> from otlp import captures
    >>> folder = tempfile.mkdtemp()
    >>> token = {"7": {"logprob": -0.1}, "3": {"logprob": -3.0}}
    >>> for name in ("target", "draft"):
    ...     with open(f"{folder}/{name}", "w") as log:
    ...         json.dump({"prompt_logprobs": [None, token, token]}, log)
    >>> len(captures.from_logprobs(f"{folder}/target", f"{folder}/draft", k=2, vocab_size=10))
    2
    """
    k, vocab_size = whole_number(k, "k"), check_vocab_size(vocab_size)
    rows: dict[str, list[TopRow]] = {"target": [], "draft": []}
    positions: list[int] = []
    logs = [_requests(path) for path in (target, draft)]
    for request, pair in enumerate(zip_longest(*logs), 1):
        if None in pair or len(pair[0]) != len(pair[1]):
            lengths = ["no" if one is None else len(one) for one in pair]
            raise CaptureError(
                f"{target!s} and {draft!s}: request {request} has {lengths[0]} tokens in the one "
                f"and {lengths[1]} in the other; log both models over the same text"
            )
        for position, tokens in enumerate(zip(*pair, strict=True)):
            if None not in tokens:
                positions.append(position)
                for name, path, given in zip(rows, (target, draft), tokens, strict=True):
                    where = f"{path!s}: token {position} of request {request}"
                    rows[name].append(_row(given, k, vocab_size, where))
    return TopCapture(
        target_logits=stack(rows["target"], k, vocab_size),
        draft_logits=stack(rows["draft"], k, vocab_size),
        target_model=target_model,
        draft_model=draft_model,
        tokenizer=tokenizer,
        source=source,
        synthetic=False,
        positions=np.array(positions, dtype=np.int64),
    )


def _requests(path: str | os.PathLike[str]) -> Iterator[list[Any]]:
    """For each line, what it says of each token."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise CaptureError(f"{path!r}: it must be the path of a file") from None
    with open_file(name) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield _tokens(json.loads(line))
            except (
                *(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError),
            ) as error:
                raise CaptureError(
                    f"{name}: line {number} has no log-probabilities by token id "
                    f"({type(error).__name__}: {error}); ask the engine for prompt_logprobs"
                ) from None


def _tokens(request: Any) -> list[Any]:
    if "prompt_logprobs" not in request:
        choice = request["choices"][0]
        request = choice if "prompt_logprobs" in choice else choice["logprobs"]
    found = request.get("prompt_logprobs") or request["top_logprobs"]
    return [
        token and {int(key.removeprefix("token_id:")): _log(x) for key, x in token.items()}
        for token in found
    ]


def _log(value: Any) -> float:
    log = float(value["logprob"] if isinstance(value, dict) else value)
    return -math.inf if log < LEAST + 2 else log


def _row(given: dict[int, float], k: int, vocab_size: int, where: str) -> TopRow:
    if len(given) < k or not all(0 <= token < vocab_size for token in given):
        raise CaptureError(
            f"{where} has {len(given)} ids, to {max(given, default=-1)}: it must have {k} below "
            f"vocab_size = {vocab_size}"
        )
    likeliest = sorted(given.items(), key=lambda item: (-item[1], item[0]))[:k]
    logs = np.array([log for _, log in likeliest])
    kept = float(np.exp(np.minimum(logs, 1.0)).sum())
    # what is lost in rounding may be there, and counts for much at high temperatures
    rest = math.log(max(1.0 - kept, 0.0) + ROUNDING) if k < vocab_size else -math.inf
    row = TopRow(np.array([token for token, _ in likeliest], dtype=np.int64), logs, rest)
    try:
        check_rows(row.ids[None], logs[None], np.array([rest]), vocab_size, lambda _: where)
    except InvalidInputError as error:
        raise CaptureError(str(error)) from None
    return row
