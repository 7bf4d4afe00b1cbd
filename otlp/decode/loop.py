"""Text generation in rounds, with or without a draft model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from otlp.checks import token_ids, whole_number
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, no_draft
from otlp.decode.models.context_limit import BeyondContextError
from otlp.decode.models.model import Model
from otlp.decode.round import Round, check_round, scored_round
from otlp.decode.tree import ROOT
from otlp.decode.verification import Autoregressive, Verification
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Text:
    """Tokens generated after a prompt.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        Generated tokens, at most the requested number.  There are fewer if an end token was
        generated or the target's context was full.
    rounds : tuple of Round
        Rounds that generated the tokens; the last round may contain additional tokens.
    seconds : float
        Wall time of all rounds, without prompt processing.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> _, target = decode.random_pair(4, 8, rng)
    >>> text, = decode.decode(target, [[1]], 3, rng)  # without a draft: one token per round
    >>> text.tokens.size, len(text.rounds)
    (3, 3)
    """

    tokens: IntArray
    rounds: tuple[Round, ...]
    seconds: float


def decode(
    target: Model,
    prompts: Sequence[IntArray],
    tokens: int,
    rng: np.random.Generator | Chooser,
    *,
    draft: Model | None = None,
    drafting: Drafting | None = None,
    verification: Verification | None = None,
    ends: Sequence[int] | None = None,
) -> tuple[Text, ...]:
    """Generate tokens after each prompt, one prompt after the other.

    Parameters
    ----------
    target : Model
        Model whose distribution the texts follow.
    prompts : sequence of int sequences
        Token ids of each prompt; lengths may differ.
    tokens : int
        Maximum number of new tokens per prompt.
    rng : numpy.random.Generator or Chooser
        Source of randomness.  Unused if the target draws with a seed (`otlp.decode.GumbelMax`):
        then prompts of equal length share the same noise, so use a different seed for each prompt
        if the texts must be independent.
    draft, drafting, verification : Model, Drafting, Verification, optional
        Pass all three or none.  Without them one token per call is sampled from the target.
    ends : sequence of int, optional
        Tokens that end a text; by default the target's end tokens.

    Returns
    -------
    tuple of Text

    Raises
    ------
    InvalidInputError
        If there is no prompt, if a prompt is invalid or exceeds the target's context, if the models
        are incompatible, or if only some of draft, drafting and verification are given.
    UnsupportedProblemError
        If the algorithm does not support the drafting; the message gives the reason.

    Notes
    -----
    One target call per round.  Near the end of a model's context, drafted paths are shortened to
    the room that is left; without room nothing is drafted.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 8, rng)
    >>> texts = decode.decode(
    ...     target, [[1], [3, 0]], 4, rng,
    ...     draft=draft, drafting=decode.iid_paths(2, 2), verification=decode.Traversal(),
    ... )
    >>> [text.tokens.size for text in texts]
    [4, 4]
    """
    whole_number(tokens, "tokens")
    given = [part is not None for part in (draft, drafting, verification)]
    if any(given) and not all(given):
        raise InvalidInputError("pass draft, drafting and verification, or none of the three")
    drafting, verification = drafting or no_draft(), verification or Autoregressive()
    check_round(draft, target, drafting, verification)
    end_tokens = target.ends
    if ends is not None:
        end_tokens = tuple(token_ids(ends, "ends", target.vocab_size).tolist())
    if not isinstance(prompts, Sequence) or not prompts:
        raise InvalidInputError(f"prompts must be a list of 1 prompt or more, got {prompts!r:.60}")
    texts = []
    for number, prompt in enumerate(prompts, start=1):
        text = token_ids(prompt, f"prompt {number}", target.vocab_size)
        start(draft, target, text)
        begin = perf_counter()
        played = tuple(
            rounds(draft, target, drafting, verification, rng, held=text.size, tokens=tokens,
                   ends=end_tokens)
        )  # fmt: skip
        texts.append(Text(_cut(played, tokens, end_tokens), played, perf_counter() - begin))
    return tuple(texts)


def start(draft: Model | None, target: Model, text: IntArray) -> None:
    """Process a text with both models; a draft with too short a context will draft nothing.

    Raises
    ------
    InvalidInputError
        If the text exceeds the target's context.
    """
    target.start(text)
    target.logits(ROOT, np.array([0]))
    if draft is not None:
        with suppress(BeyondContextError):
            draft.start(text)
            draft.logits(ROOT, np.array([0]))


def rounds(
    draft: Model | None,
    target: Model,
    drafting: Drafting,
    verification: Verification,
    rng: np.random.Generator | Chooser,
    *,
    held: int,
    tokens: float = np.inf,
    ends: Sequence[int] = (),
    most: float = np.inf,
) -> Iterator[Round]:
    """Play rounds; both models advance after each round, when the iterator is resumed.

    Parameters
    ----------
    draft, target, drafting, verification, rng
        As for `decode`, already checked; both models must be at the end of the text.
    held : int
        Number of tokens in the text so far.
    tokens : int
        Number of new tokens after which rounds end.  A full context ends the rounds too.
    ends : sequence of int
        End tokens; a round that contains an end token is the last round.
    most : float
        Maximum length of the text in tokens; near this length drafted paths are shortened.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 8, rng)
    >>> for model in (draft, target):
    ...     model.start(np.array([1]))
    >>> parts = draft, target, decode.iid_paths(2, 2), decode.Traversal()
    >>> sum(played.tokens.size for played in decode.rounds(*parts, rng, held=1, tokens=4)) >= 4
    True
    """
    goal = held + tokens
    models = [target] if draft is None else [draft, target]
    while held < goal and held <= (target.context_limit or np.inf):
        limits = [model.context_limit or np.inf for model in models]
        longest = max(min([most - 1, *limits]) - held, 0)
        short = longest < drafting.length
        wanted = drafting.shortened(int(longest)) if short else drafting
        rule = verification if wanted.length else Autoregressive()
        played = scored_round(draft, target, wanted, rule, rng)
        yield played
        for model in models:
            model.advance(played.tree, played.outcome.node, played.token)
        held += played.tokens.size
        if np.isin(played.tokens, ends).any():
            return


def _cut(played: Sequence[Round], tokens: int, ends: Sequence[int]) -> IntArray:
    """Return the first `tokens` tokens of the rounds, up to and including the first end token."""
    generated = np.concatenate([each.tokens for each in played])[:tokens]
    (found,) = np.isin(generated, ends).nonzero()
    return generated[: found[0] + 1] if found.size else generated
