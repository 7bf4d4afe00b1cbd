"""Draft schemes by name, each built from one distribution q and n."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from otlp.checks import check_choice
from otlp.distribution import FloatArray
from otlp.drafts.greedy import Greedy
from otlp.drafts.hub import Hub
from otlp.drafts.iid import IID
from otlp.drafts.independent import Independent
from otlp.drafts.scheme import DraftScheme
from otlp.drafts.without_replacement import WithoutReplacement
from otlp.errors import TooFewTokensError

SchemeMaker = Callable[[FloatArray, int], DraftScheme]
"""Function or class that builds a draft scheme from q and n."""


def tempered(draft: FloatArray, n: int) -> Independent:
    """Return drafts from q at temperatures 1, 2^-1/2, 2^1/2, 2^-1, 2, ... times that of q."""
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
    """Build a draft scheme from its name in `SCHEMES`, or with a function of q and n.

    Raises
    ------
    InvalidInputError
        If the name is unknown, or the scheme cannot draft n tokens from q.
    """
    if callable(kind):
        return kind(draft, n)
    check_choice("draft scheme", kind, SCHEMES)
    return SCHEMES[kind](draft, n)


def make_siblings(kind: str | SchemeMaker, draft: FloatArray, n: int) -> DraftScheme:
    """Build a draft scheme of n tokens, or of fewer if q has fewer different tokens.

    Raises
    ------
    InvalidInputError
        As in `make_scheme`.
    """
    try:
        return make_scheme(kind, draft, n)
    except TooFewTokensError as error:
        # All schemes agree for a single token, and a hub needs a pair.
        return IID(draft, 1) if error.most == 1 else make_scheme(kind, draft, error.most)
