"""How long a text a language model holds, and why no longer."""

from __future__ import annotations

from typing import Any

from otlp.errors import InvalidInputError


class BeyondContextError(InvalidInputError):
    """A text is longer than a model's context."""


def context_limit(config: Any, tokens: int) -> int | None:
    """How many tokens a text that has `tokens` already may grow to; None if there is no limit.

    What the model was made for, and, until the text is longer than that, the length at which its
    rotary embedding changes.
    """
    made_for = getattr(config, "max_position_embeddings", None)
    switch = rotary_switch(config)
    limits = [made_for, switch if switch is not None and tokens <= switch else None]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def rotary_switch(config: Any) -> int | None:
    """Length of text at which a model's rotary embedding changes; None if it does not.

    With ``longrope`` every position of a text is embedded differently once the text is longer, so
    a cache does not outlive the switch.
    """
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # some models have one set for each kind of layer
    sets = [given, *(value for value in given.values() if isinstance(value, dict))]
    switches = [
        part.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for part in sets
        if part.get("rope_type", part.get("type")) in ("longrope", "su")
    ]
    return min((int(length) for length in switches if length is not None), default=None)
