"""Check that a model name exists on the hub, with one request and a short timeout."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from otlp.errors import InvalidInputError

PATIENCE = 10.0
"""Timeout of the hub request in seconds; loading itself would retry for a minute."""


def hub_folder(source: str) -> Path:
    """Return the path `source` if it exists, else the model's folder in the hub's cache.

    If neither exists, the returned path does not exist.
    """
    path = Path(source)
    if path.exists():
        return path
    try:
        from huggingface_hub import errors, try_to_load_from_cache
    except ImportError:  # Without huggingface_hub there is no cache.
        return path
    try:
        found = try_to_load_from_cache(source, "config.json")
    except errors.HFValidationError:
        return path
    return Path(found).parent if isinstance(found, str) else path


def check_hub(source: str, known: Sequence[str] = ()) -> None:
    """Check that a model that is neither on this machine nor in the hub's cache is on the hub.

    Parameters
    ----------
    source : str
        Name of a model; existing folders and files are not checked.
    known : sequence of str
        Built-in model names, for a suggestion in the error.

    Raises
    ------
    InvalidInputError
        If the name has no owner, the hub has no such model, or the hub cannot be reached.
    """
    near = get_close_matches(source, known, n=1, cutoff=0.6)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    if hub_folder(source).exists():
        return
    if "/" not in source:
        raise InvalidInputError(
            f"the model {source!r} must be a built-in name, a folder, or a name on the hub "
            f"(owner/name){suggestion}"
        )
    try:
        _request(source)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}{suggestion}") from None


@cache
def _request(source: str) -> None:
    """Ask the hub for a model, once per process if it succeeds; see `check_hub`."""
    from huggingface_hub import HfApi, errors

    try:
        HfApi().model_info(source, timeout=PATIENCE)
    except errors.OfflineModeIsEnabled:
        return  # Loading reports the offline mode.
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise InvalidInputError(
            f"{source!r} is neither on this machine nor a model on the hub"
        ) from None
    except Exception as error:  # A network request may raise any exception.
        raise InvalidInputError(
            f"{source!r} is not on this machine, and the hub cannot be reached "
            f"({type(error).__name__})"
        ) from None
