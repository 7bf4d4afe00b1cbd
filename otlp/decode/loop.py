"""The loop that writes text, with a draft or without one: rounds, until there are enough tokens."""

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
    """What was written after a prompt.

    Attributes
    ----------
    tokens : ndarray of int64, shape (T,)
        At most as many as were asked for; fewer where an end token or the target's context is the
        last.
    rounds : tuple of Round
        What they came from, whole: the last may go beyond them.
    seconds : float
        Wall time of all rounds, without the reading of the prompt.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> _, target = decode.random_pair(4, 8, rng)
    >>> text, = decode.decode(target, [[1]], 3, rng)      # without a draft: a token a round
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
    """Go on with each prompt by so many tokens, one prompt after the other.

    Parameters
    ----------
    target : Model
        Whose distribution the texts follow.
    prompts : sequence of int sequences
        Token ids; of any lengths.
    tokens : int
        At most so many new ones each.
    rng : numpy.random.Generator or Chooser
        Not asked where the target draws by a seed (`otlp.decode.GumbelMax`): then prompts of equal
        length meet the same noise, so give each a seed of its own where texts must be independent.
    draft, drafting, verification : Model, Drafting, Verification, optional
        All three, or none: then a token a call is sampled from the target.
    ends : sequence of int, optional
        Tokens that end a text; by default the target's own.

    Returns
    -------
    tuple of Text

    Raises
    ------
    InvalidInputError
        If there is no prompt, one is none, or exceeds the target's context; if the models do not go
        together, or only some of draft, drafting and verification are given.
    UnsupportedProblemError
        If the algorithm does not take the drafting; says why.

    Notes
    -----
    One target call a round.  Where a model's context ends, paths are drafted no longer than it
    holds, and none without room for them.

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
    given = [one is not None for one in (draft, drafting, verification)]
    if any(given) and not all(given):
        raise InvalidInputError("give draft, drafting and verification, or none of the three")
    drafting, verification = drafting or no_draft(), verification or Autoregressive()
    check_round(draft, target, drafting, verification)
    last = target.ends
    if ends is not None:
        last = tuple(token_ids(ends, "ends", target.vocab_size).tolist())
    if not isinstance(prompts, Sequence) or not prompts:
        raise InvalidInputError(f"prompts is {prompts!r:.60}: give a list of one prompt at least")
    texts = []
    for number, prompt in enumerate(prompts, start=1):
        text = token_ids(prompt, f"prompt {number}", target.vocab_size)
        start(draft, target, text)
        begin = perf_counter()
        played = tuple(
            rounds(draft, target, drafting, verification, rng, held=text.size, tokens=tokens,
                   ends=last)
        )  # fmt: skip
        texts.append(Text(_cut(played, tokens, last), played, perf_counter() - begin))
    return tuple(texts)


def start(draft: Model | None, target: Model, text: IntArray) -> None:
    """Let both models read a text; a draft whose context it exceeds will draft nothing.

    Raises
    ------
    InvalidInputError
        If it exceeds the target's.
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
    """Play rounds; both models go on when the next is asked for, or when there is none.

    Parameters
    ----------
    draft, target, drafting, verification, rng
        As for `decode`, checked; both models at the end of the text.
    held : int
        Tokens of the text so far.
    tokens : int
        Rounds end with the one that brings so many new tokens, or with a full context.
    ends : sequence of int
        Or with one of these among its tokens.
    most : float
        What the text is to grow to: near that, shorter paths are drafted.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 8, rng)
    >>> for model in (draft, target):
    ...     model.start(np.array([1]))
    >>> parts = draft, target, decode.iid_paths(2, 2), decode.Traversal()
    >>> sum(one.tokens.size for one in decode.rounds(*parts, rng, held=1, tokens=4)) >= 4
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
    """What the rounds wrote, up to its first end token, and no more than was asked for."""
    written = np.concatenate([one.tokens for one in played])[:tokens]
    (found,) = np.isin(written, ends).nonzero()
    return written[: found[0] + 1] if found.size else written
