"""Whether a checkpoint holds the weights of its model: transformers draws what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otlp.errors import InvalidInputError, clean

SHOWN = 3
"""Names of weights in an error."""

LONGEST_REASON = 300
"""Characters."""


def check_weights(source: str, found: Mapping[str, Any]) -> None:
    """Refuse a model some of whose weights are random, or that left weights of its files out.

    Parameters
    ----------
    source : str
        What to call it.
    found : mapping
        What ``from_pretrained(..., output_loading_info=True)`` says beside the model; weights that
        are tied to others, and buffers that the model makes itself, are not in it.

    Raises
    ------
    InvalidInputError
        Naming some of the weights.
    """
    kinds = {
        "lack": found.get("missing_keys", ()),
        "have in another shape": found.get("mismatched_keys", ()),
        "have beside those of the model": found.get("unexpected_keys", ()),
    }
    said = [f"{kind} {_some(names)}" for kind, names in kinds.items() if names]
    if said:
        raise InvalidInputError(
            f"the weights of {source} are not those that its configuration asks for: its files "
            f"{', and '.join(said)}; give the whole checkpoint, saved from the model itself, with "
            "its own config.json"
        )


def reason_of(error: Exception) -> str:
    """The first line of what another package says of its failure, with the type if it is odd."""
    first = next(iter(str(error).strip().splitlines()), "")[:LONGEST_REASON]
    plain = first and isinstance(error, OSError | ValueError | RuntimeError)
    return clean(first if plain else f"{type(error).__name__} {first}".strip())


def _some(names: Any) -> str:
    """The first names, and how many more; a mismatch is a name with two shapes."""
    every = sorted(one if isinstance(one, str) else str(one[0]) for one in names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more
