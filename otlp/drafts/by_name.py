"""The draft schemes by name: ways of drafting n tokens from one distribution q."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from otlp.checks import nearest
from otlp.distribution import FloatArray
from otlp.drafts.greedy import Greedy
from otlp.drafts.hub import Hub
from otlp.drafts.iid import IID
from otlp.drafts.independent import Independent
from otlp.drafts.scheme import DraftScheme
from otlp.drafts.without_replacement import WithoutReplacement
from otlp.errors import InvalidInputError, TooFewTokensError

SchemeMaker = Callable[[FloatArray, int], DraftScheme]
"""From q and n to a draft scheme: a class of schemes, or a function."""


def tempered(draft: FloatArray, n: int) -> Independent:
    """Drafts from q at temperatures 1, 2^-1/2, 2^1/2, 2^-1, 2, ... times that of q."""
    with np.errstate(divide="ignore"):
        logits = np.log(draft) - np.log(draft.max())
    temperatures = [2.0 ** ((j + 1) // 2 * (-1) ** j / 2.0) for j in range(n)]
    weights = [np.exp(logits / temperature) for temperature in temperatures]
    return Independent([weight / weight.sum() for weight in weights])


SCHEMES: Mapping[str, SchemeMaker] = {
    "iid": IID,
    "without-replacement": WithoutReplacement,
    "greedy": Greedy,
    "hub": Hub,
    "independent": tempered,
}
"""Draft schemes by name, each built from one draft distribution q and n.

"independent" means n different drafts: q at temperatures 1, 2^-1/2, 2^1/2, 2^-1, 2, ...
"""


def make_scheme(kind: str | SchemeMaker, draft: FloatArray, n: int) -> DraftScheme:
    """Build a draft scheme by its name in `SCHEMES`, or by a function of q and n.

    Raises
    ------
    InvalidInputError
        If there is no such scheme, or it cannot draft n tokens from q.
    """
    if callable(kind):
        return kind(draft, n)
    if not isinstance(kind, str) or kind not in SCHEMES:
        raise InvalidInputError(f"no draft scheme is named {kind!r}: {nearest(kind, SCHEMES)}")
    return SCHEMES[kind](draft, n)


def make_siblings(kind: str | SchemeMaker, draft: FloatArray, n: int) -> DraftScheme:
    """Build a draft scheme of n tokens, or of as many different ones as q has.

    Raises
    ------
    InvalidInputError
        As `make_scheme`.
    """
    try:
        return make_scheme(kind, draft, n)
    except TooFewTokensError as error:
        # Of a single token all schemes say the same, and a hub has no pair.
        return IID(draft, 1) if error.most == 1 else make_scheme(kind, draft, error.most)
