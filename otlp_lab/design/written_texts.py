"""Texts decoded from the target or stored in a capture, with the distributions of both models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from otlp.checks import whole_number
from otlp.data.captures import Capture
from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.tree import ROOT, TokenTree
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.studies.capturing import DECODED, check_room, decode_target, source_of
from otlp_lab.design import WrittenText


def write_text(
    draft: Model, target: Model, prompt: IntArray, tokens: int, rng: np.random.Generator
) -> WrittenText:
    """Decode a text from the target and keep the distributions of both models.

    The text has `tokens` tokens, or ends earlier with an end token.  One call of each model per
    token.

    Raises
    ------
    InvalidInputError
        If `tokens` is less than 1, or prompt and text do not fit into a model's context.
    """
    check_pair(draft, target)
    whole_number(tokens, "tokens")
    check_room((draft, target), prompt, tokens)
    steps = [
        (one.token, one.outcome.correction, draft.distributions(ROOT, np.array([0]))[0])
        for one in decode_target(draft, target, prompt, tokens, rng)
    ]
    text, p, q = (np.stack(some) for some in zip(*steps, strict=True))
    return WrittenText(text, p, q)


def with_draft(text: WrittenText, draft: Model) -> WrittenText:
    """Return the text with the distributions of a draft at its beginning; one call."""
    places = np.arange(len(text))
    along = TokenTree(np.append(-1, text.tokens[:-1]), places - 1)
    return replace(text, drafts=draft.distributions(along, places))


def captured_texts(capture: Capture, temperature: float) -> Iterator[WrittenText]:
    """Yield the texts of a capture: runs of rows with consecutive positions.

    Parameters
    ----------
    capture : Capture
        Capture of text decoded from the target at this temperature with next tokens, as written by
        ``otlp capture``.
    temperature : float

    Notes
    -----
    If the capture stores only the most likely tokens, a text token that is not stored becomes the
    last token, which represents all such tokens.  The draft never proposes this token, so the
    predictions are those of a draft that is limited to the stored tokens.  At temperatures other
    than 1 the target's mass of the tokens that are not stored is set to its upper bound.

    Raises
    ------
    InvalidInputError
        If rows have no positions or next tokens, or the capture's source names another sampling.
    """
    wanted = source_of(Sampling(temperature))
    if capture.source.startswith(f"{DECODED} at ") and capture.source != wanted:
        raise InvalidInputError(
            f"the source of the capture must be {wanted}, got {capture.source}: give the sampling "
            "of the capture, or make another capture"
        )
    positions, tokens = np.asarray(capture.positions), np.asarray(capture.next_tokens)
    if not tokens.size or tokens.min() < 0 or positions.min() < 0:
        raise InvalidInputError(
            "the capture must contain positions and next tokens: make a capture with otlp capture"
        )
    # A passage may have gaps between its rows, but a text must not.
    apart = (np.diff(capture.passages) != 0) | (np.diff(positions) != 1)
    for rows in np.split(np.arange(tokens.size), np.flatnonzero(apart) + 1):
        pairs = [capture.distributions(int(row), temperature) for row in rows]
        p, q = (np.stack(some) for some in zip(*pairs, strict=True))
        text = tokens[rows]
        if capture.kept is not None:  # the last token represents all tokens that were not kept
            text = np.where(p[np.arange(rows.size), text] > 0.0, text, capture.vocab_size - 1)
        yield WrittenText(text, p, q)


def long_texts(
    texts: Sequence[WrittenText], length: int, least: int, say: Callable[[str], object]
) -> list[WrittenText]:
    """Return the texts longer than `length`; call `say` with the number of others.

    Raises
    ------
    InvalidInputError
        If fewer than `least` texts are longer.
    """
    long = [text for text in texts if len(text) > length]
    if len(long) < least:
        raise InvalidInputError(
            f"at least {least} texts must be longer than the longest path, {length} tokens, got "
            f"{len(long)} of {len(texts)}: give more prompts, longer texts or shorter paths"
        )
    if len(long) < len(texts):
        say(f"{len(texts) - len(long)} of {len(texts)} texts are shorter than {length + 1} tokens")
    return long
