"""Whether a name on the hub is that of a model, asked once and without long waits."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from otlp.errors import InvalidInputError

PATIENCE = 10.0
"""Seconds that the hub may take: loading itself would try again and again for a minute."""


def hub_folder(source: str) -> Path:
    """The folder or file itself, or the folder of the hub's cache that holds a model of that name.

    Where there is neither, no such path exists.
    """
    path = Path(source)
    if path.exists():
        return path
    try:
        from huggingface_hub import errors, try_to_load_from_cache
    except ImportError:  # without it nothing is in its cache
        return path
    try:
        found = try_to_load_from_cache(source, "config.json")
    except errors.HFValidationError:
        return path
    return Path(found).parent if isinstance(found, str) else path


@cache
def check_hub(source: str, known: Sequence[str] = ()) -> None:
    """Ask the hub for a model that is neither on this machine nor in the hub's cache.

    Parameters
    ----------
    source : str
        A folder or a file, with which nothing is done, or a name.
    known : sequence of str
        Names of the package's own, one of which may be meant.

    Raises
    ------
    InvalidInputError
        If the hub has no such model, or cannot be reached.
    """
    from huggingface_hub import HfApi, errors

    near = get_close_matches(source, known, n=1, cutoff=0.4)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    try:
        if hub_folder(source).exists():
            return
        HfApi().model_info(source, timeout=PATIENCE)
    except errors.OfflineModeIsEnabled:
        return  # loading says so
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise InvalidInputError(
            f"{source!r} is neither on this machine nor a model on the hub{meant}"
        ) from None
    except Exception as error:  # of a network, anything may come
        raise InvalidInputError(
            f"{source!r} is not on this machine, and the hub cannot be asked for it "
            f"({type(error).__name__}){meant}"
        ) from None
