"""Empty figures and their file types; the only module that imports matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from otlp.errors import EngineNotFoundError
from otlp.studies.style import LOOK


def file_types() -> tuple[str, ...]:
    """Return the file endings that a figure can be written to, such as ``.png``.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    return tuple(f".{name}" for name in sorted(_empty(1.0, 1.0).canvas.get_supported_filetypes()))


@contextmanager
def figure(
    path: Path | str,
    width: float,
    height: float,
    settings: Any = MappingProxyType({}),
) -> Iterator[Any]:
    """Create an empty figure of a size in inches, and write it to `path` when the block ends.

    The style is matplotlib's defaults, `LOOK` and `settings`; the user's own settings are ignored.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    _empty(1.0, 1.0)
    from matplotlib import rc_context, rcdefaults, rcParams

    with rc_context():
        rcdefaults()
        rcParams.update({**LOOK, **settings})
        canvas = _empty(width, height)
        yield canvas
        # Omit the date so that the same figure is the same file.
        metadata = {"Date": None} if str(path).endswith(".svg") else None
        with warnings.catch_warnings():
            # Names and texts may use any script; viewers of an SVG can still show them.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            canvas.savefig(path, dpi=200, metadata=metadata)


def axes_or_new(axes: Any) -> Any:
    """Return `axes`, or the axes of a new pyplot figure if `axes` is None.

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    """
    if axes is not None:
        return axes
    _empty(1.0, 1.0)
    from matplotlib import pyplot, rc_context

    with rc_context(LOOK):
        return pyplot.subplots(layout="constrained")[1]


def _empty(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EngineNotFoundError('a figure needs matplotlib: pip install -e ".[plot]"') from None
    return Figure(figsize=(width, height), layout="constrained")
