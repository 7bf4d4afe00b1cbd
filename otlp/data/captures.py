"""Captured logits of a target and a draft model: real rows to solve, without running a model.

A capture is one safetensors file of tensors:

- ``target_logits``, (rows, V), F16, BF16, F32 or F64: logits of the target at temperature 1
- ``draft_logits``, (rows, V), the same type: logits of the draft for the same contexts
- ``positions``, (rows,), I64: tokens before the row in its passage; -1 if unknown
- ``next_tokens``, (rows,), I64: the token that the text goes on with; -1 if unknown
- ``contexts``, (bytes,), U8: the texts before the rows, their UTF-8 bytes one behind the other
- ``context_ends``, (rows,), I64: where each of these texts ends

The file's metadata holds ``format`` (``otlp-capture-2``), ``target_model``, ``draft_model``,
``tokenizer``, ``source``, ``synthetic`` (``true`` or ``false``) and ``note``.  With the format
``otlp-capture-1``, which any tool can write, the texts are a JSON list in the metadata,
``contexts``.

Behind the tensors stand check sums, ``NAME.crc32``, U32, of each row, or of every 4,096 numbers of
a tensor of one axis, and the label ``crc32`` is that of the other labels.  They are compared when
rows are read; files of other tools need none.

A capture may be of any size: a large file is opened, and its rows are read when they are used.  For
captures of the k likeliest tokens only see `otlp.data.top_capture`.

Examples
--------
>>> from otlp import captures
>>> target, draft = captures.builtin().distributions(row=0)
>>> target.shape == draft.shape == (49153,)  # the last stands for all tokens that were not kept
True
"""

from __future__ import annotations

import os
from importlib import resources

from otlp.data import capture_file
from otlp.data.capture import Capture, CaptureRow
from otlp.data.columns import LogitArray
from otlp.data.top_capture import TopCapture, keep_top
from otlp.data.top_rows import TopRows
from otlp.data.whole_file import whole_file, writing_to
from otlp.errors import CaptureError, InvalidInputError

__all__ = [
    "Capture",
    "CaptureRow",
    "LogitArray",
    "TopCapture",
    "TopRows",
    "builtin",
    "keep_top",
    "load",
    "save",
]

IN_MEMORY = 2**28
"""Bytes; a larger file stays where it is, and its rows are read when they are used."""


def load(path: str | os.PathLike[str]) -> Capture:
    """Read a capture, or open a large one.

    Parameters
    ----------
    path : path-like
        A file that `save` wrote, or that has the layout above.

    Returns
    -------
    Capture
        Every value as it was stored.  A file of up to 256 MiB is read, and each value is checked.
        Of a larger one the header alone is read and checked; each row is read when it is used, and
        checked then.  A `TopCapture` if that is what was saved.

    Raises
    ------
    CaptureError
        If the file is missing, unreadable, truncated, no safetensors file, no capture, or holds
        values that a `Capture` refuses. The message names the file, the trouble and the way out.

    Notes
    -----
    It is opened once, so it is one file that is read, even if another takes its name
    meanwhile; a row of a file that was opened and has changed since is refused.

    Examples
    --------
    >>> import os, tempfile
    >>> from otlp import captures
    >>> path = os.path.join(tempfile.mkdtemp(), "ten.safetensors")
    >>> captures.save(captures.builtin()[:10], path)
    >>> len(captures.load(path))
    10
    """
    return capture_file.read_capture_file(_name(path), IN_MEMORY)


def save(capture: Capture, path: str | os.PathLike[str]) -> None:
    """Write a capture, all of it or nothing.

    Parameters
    ----------
    capture : Capture
        What to write; its logits are stored in the precision `capture.dtype`.
    path : path-like
        The file to write or replace; its folder must exist.

    Raises
    ------
    CaptureError
        If the file cannot be written. What was at `path` is then still there, unchanged.
    InvalidInputError
        If `capture` is no capture, or a row that is read from a file holds no logits.

    Notes
    -----
    See `otlp.data.whole_file`. O(file size) time, in pieces of 16 MiB.

    Examples
    --------
    >>> import os, tempfile
    >>> from otlp import captures
    >>> folder = tempfile.mkdtemp()
    >>> captures.save(captures.builtin()[:10], os.path.join(folder, "ten.safetensors"))
    >>> os.listdir(folder)
    ['ten.safetensors']
    """
    if not isinstance(capture, Capture):
        raise InvalidInputError(f"capture is a {type(capture).__name__}: it must be a Capture")
    name = _name(path)
    with writing_to(name), whole_file(name) as temporary:
        capture_file.write(temporary, [capture])


def builtin() -> Capture:
    """Read the capture that comes with the library.

    Returns
    -------
    Capture
        A `TopCapture` of SmolLM2-135M-Instruct and a draft distilled for it, at places far apart
        of texts that the target wrote; its `source` and `note` say more.

    Raises
    ------
    CaptureError
        If the installation lacks the file.

    Examples
    --------
    >>> from otlp import captures
    >>> capture = captures.builtin()
    >>> len(capture), capture.vocab_size, capture.kept
    (162, 49153, 1500)
    """
    with resources.as_file(resources.files("otlp") / "data" / "capture.safetensors") as path:
        return load(path)


def _name(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fsdecode(path)
    except (TypeError, ValueError):
        name = ""
    if not name or "\0" in name:
        raise CaptureError(f"path is {path!r:.200}: it must be the path of a file")
    return os.path.abspath(name)
