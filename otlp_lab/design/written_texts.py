"""Texts that the target writes, or has written into a capture, and what both models say there."""

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
from otlp.studies.capturing import DECODED, check_room, source_of, written
from otlp_lab.design import WrittenText


def write_text(
    draft: Model, target: Model, prompt: IntArray, tokens: int, rng: np.random.Generator
) -> WrittenText:
    """Let the target write, and keep what both models say; one call of each a token.

    The text has `tokens` tokens, or ends with an end token before.

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
        for one in written(draft, target, prompt, tokens, rng)
    ]
    text, p, q = (np.stack(some) for some in zip(*steps, strict=True))
    return WrittenText(text, p, q)


def drafted_anew(text: WrittenText, draft: Model) -> WrittenText:
    """The same text with what a draft at its beginning says along it; one call."""
    places = np.arange(len(text))
    along = TokenTree(np.append(-1, text.tokens[:-1]), places - 1)
    return replace(text, drafts=draft.distributions(along, places))


def captured_texts(capture: Capture, temperature: float) -> Iterator[WrittenText]:
    """The texts of a capture: runs of rows whose positions follow each other.

    Parameters
    ----------
    capture : Capture
        Of text that the target wrote at this temperature, as ``otlp capture`` makes it, with the
        next tokens.
    temperature : float

    Notes
    -----
    If the capture stores the most likely tokens only, a text token that is not stored becomes the
    last token, which stands for all of these.  The draft never proposes it, so the predictions are
    those of a draft that is cut to the stored tokens.  At other temperatures than 1 the target's
    mass of the tokens that are not stored is taken at its largest.

    Raises
    ------
    InvalidInputError
        If rows have no positions or next tokens, or the capture says that its text was written
        with another sampling.
    """
    wanted = source_of(Sampling(temperature))
    if capture.source.startswith(f"{DECODED} at ") and capture.source != wanted:
        raise InvalidInputError(
            f"the capture holds {capture.source}, and text renewal needs {wanted}: give the "
            "sampling that the text was written with, or capture such a text"
        )
    positions, tokens = np.asarray(capture.positions), np.asarray(capture.next_tokens)
    if not tokens.size or tokens.min() < 0 or positions.min() < 0:
        raise InvalidInputError(
            "the capture does not say which tokens its text goes on with: make one with otlp "
            "capture"
        )
    # a passage may have gaps between its rows, and a text must not
    apart = (np.diff(capture.passages) != 0) | (np.diff(positions) != 1)
    for rows in np.split(np.arange(tokens.size), np.flatnonzero(apart) + 1):
        pairs = [capture.distributions(int(row), temperature) for row in rows]
        p, q = (np.stack(some) for some in zip(*pairs, strict=True))
        text = tokens[rows]
        if capture.kept is not None:  # tokens that were not kept are one token, the last
            text = np.where(p[np.arange(rows.size), text] > 0.0, text, capture.vocab_size - 1)
        yield WrittenText(text, p, q)


def long_texts(
    texts: Sequence[WrittenText], length: int, least: int, say: Callable[[str], object]
) -> list[WrittenText]:
    """The texts that are longer than a path; says how many are not.

    Raises
    ------
    InvalidInputError
        If fewer than `least` are.
    """
    long = [text for text in texts if len(text) > length]
    if len(long) < least:
        raise InvalidInputError(
            f"{len(long)} of {len(texts)} texts are longer than the longest path, {length} tokens, "
            f"and {least} must be: give more prompts, longer texts or shorter paths"
        )
    if len(long) < len(texts):
        say(f"{len(texts) - len(long)} of {len(texts)} texts are shorter than {length + 1} tokens")
    return long
