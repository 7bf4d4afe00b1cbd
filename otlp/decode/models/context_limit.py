"""Maximum text length of a language model."""

from __future__ import annotations

from typing import Any

from otlp.errors import InvalidInputError


class BeyondContextError(InvalidInputError):
    """Raised if a text is longer than a model's context."""


def context_limit(config: Any, tokens: int) -> int | None:
    """Return the maximum length of a text that has `tokens` tokens now; None if there is no limit.

    The limit is the model's maximum number of positions and, while the text is not longer, the
    length at which the rotary embedding changes.
    """
    maximum = getattr(config, "max_position_embeddings", None)
    switch = rotary_switch(config)
    limits = [maximum, switch if switch is not None and tokens <= switch else None]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def rotary_switch(config: Any) -> int | None:
    """Return the text length at which a model's rotary embedding changes; None if it does not.

    With ``longrope`` every position is embedded differently once the text is longer, so a cache is
    invalid after the switch.
    """
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # Some models have one set of parameters per kind of layer.
    sets = [given, *(value for value in given.values() if isinstance(value, dict))]
    switches = [
        part.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for part in sets
        if part.get("rope_type", part.get("type")) in ("longrope", "su")
    ]
    return min((int(length) for length in switches if length is not None), default=None)
