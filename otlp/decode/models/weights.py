"""Check that a checkpoint has all weights of its model; transformers fills gaps at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otlp.errors import InvalidInputError, clean

SHOWN = 3
"""Maximum number of weight names in an error."""

LONGEST_REASON = 300
"""Maximum number of characters of a reason."""


def check_weights(source: str, found: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if weights were initialised at random or weights in the files unused.

    Parameters
    ----------
    source : str
        Name of the model in the error.
    found : mapping
        Loading info of ``from_pretrained(..., output_loading_info=True)``; it does not list tied
        weights and buffers that the model creates itself.

    Raises
    ------
    InvalidInputError
        Names some of the weights.
    """
    kinds = {
        "lack": found.get("missing_keys", ()),
        "have in another shape": found.get("mismatched_keys", ()),
        "have in addition": found.get("unexpected_keys", ()),
    }
    differences = [f"{kind} {_first_names(names)}" for kind, names in kinds.items() if names]
    if differences:
        raise InvalidInputError(
            f"the weights of {source} do not match its configuration: its files "
            f"{', and '.join(differences)}; pass the complete checkpoint, saved from the model "
            "itself, with its own config.json"
        )


def reason_of(error: Exception) -> str:
    """Return the first line of a package's error, with the exception type if it is unusual."""
    first = next(iter(str(error).strip().splitlines()), "")[:LONGEST_REASON]
    usual = first and isinstance(error, OSError | ValueError | RuntimeError)
    return clean(first if usual else f"{type(error).__name__} {first}".strip())


def _first_names(names: Any) -> str:
    """List the first names and the number of others; a mismatch is a name with two shapes."""
    every = sorted(name if isinstance(name, str) else str(name[0]) for name in names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more
