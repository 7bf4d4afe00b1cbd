"""Captured logits of a target and a draft model: real rows to solve, without running a model.

A capture is one safetensors file, which any tool that writes that format can make, of tensors:

- ``target_logits``, (rows, V), F16, BF16 or F32: logits of the target at temperature 1
- ``draft_logits``, (rows, V), the same type: logits of the draft for the same contexts
- ``positions``, (rows,), I64: tokens before the row in its passage; -1 if unknown
- ``next_tokens``, (rows,), I64: the token that the text goes on with; -1 if unknown

The file's metadata holds ``format`` (``otlp-capture-1``), ``target_model``, ``draft_model``,
``tokenizer``, ``source``, ``synthetic`` (``true`` or ``false``), ``note``, and ``contexts``, a
JSON list with the text before each row.

A large capture is many such files and an index; see `otlp.data.shards` for those, and
`otlp.data.top_capture` for captures of the k likeliest tokens only.

Examples
--------
>>> from otlp import captures
>>> target, draft = captures.builtin().distributions(row=0)
>>> target.shape == draft.shape == (4096,)
True
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from otlp.data import capture_file
from otlp.data.capture import Capture, CaptureRow
from otlp.data.columns import LogitArray
from otlp.data.engine_log import from_logprobs
from otlp.data.shards import INDEX, index_path, open_shards, write_shards
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
    "from_logprobs",
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
        A file that `save` wrote, or that has the layout above; the index of a capture in shards,
        or the name that it was saved under; or a folder that holds one capture.

    Returns
    -------
    Capture
        Every value as it was stored.  A file of up to 256 MiB is read, and each value is checked.
        Of a larger one, and of shards, headers and sizes alone are read and checked; each row is
        read when it is used, and checked then.  A `TopCapture` if that is what was saved.

    Raises
    ------
    CaptureError
        If a file is missing, unreadable, truncated, no safetensors file, no capture, or holds
        values that a `Capture` refuses; if shards disagree with their index, or it names files
        outside its folder. The message names the file, the trouble and the way out.

    Notes
    -----
    A file is opened once, so it is one file that is read, even if another takes its name
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
    name = _name(path)
    if os.path.isdir(name):
        name = _only_capture(Path(name))
    elif not os.path.lexists(name) and os.path.lexists(index_path(name)):
        name = os.fspath(index_path(name))
    if name.endswith(INDEX):
        return open_shards(name)
    return capture_file.read_capture_file(name, IN_MEMORY)


def save(capture: Capture, path: str | os.PathLike[str], *, shard_bytes: int | None = None) -> None:
    """Write a capture, all of it or nothing.

    Parameters
    ----------
    capture : Capture
        What to write; its logits are stored in the precision `capture.dtype`.
    path : path-like
        The file to write or replace; its folder must exist.
    shard_bytes : int, optional
        Write shards with about so many bytes of logits each, and at least a row, beside the index
        ``NAME.safetensors.index.json``; nothing of that name may be there.  Left out, one file.

    Raises
    ------
    CaptureError
        If a file cannot be written. What was at `path` is then still there, unchanged, and no
        shard is left.
    InvalidInputError
        If `capture` is no capture, `shard_bytes` no whole number of at least 1, or a row that is
        read from a file holds no logits.

    Notes
    -----
    See `otlp.data.whole_file`. O(file size) time, in pieces of 16 MiB.

    Examples
    --------
    >>> import os, tempfile
    >>> from otlp import captures
    >>> folder = tempfile.mkdtemp()
    >>> captures.save(captures.builtin()[:10], os.path.join(folder, "ten.safetensors"))
    >>> captures.save(captures.builtin()[:10], os.path.join(folder, "many"), shard_bytes=50_000)
    >>> len(os.listdir(folder)) > 2
    True
    """
    if not isinstance(capture, Capture):
        raise InvalidInputError(f"capture is a {type(capture).__name__}: it must be a Capture")
    name = _name(path)
    if shard_bytes is not None:
        write_shards(capture, name, shard_bytes)
        return
    layout = capture_file.FORMAT if capture.kept is None else capture_file.LARGE
    with writing_to(name), whole_file(name) as temporary:
        capture_file.write(temporary, capture, layout=layout)


def builtin() -> Capture:
    """Read the capture that comes with the library.

    Returns
    -------
    Capture
        Rows of a small real pair of language models (not synthetic) at consecutive positions of
        held-out passages; its `source` and `note` say which models and which text.

    Raises
    ------
    CaptureError
        If the installation lacks the file.

    Examples
    --------
    >>> from otlp import captures
    >>> capture = captures.builtin()
    >>> len(capture), capture.vocab_size
    (160, 4096)
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


def _only_capture(folder: Path) -> str:
    """The one index in a folder, or its one capture file."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise CaptureError(f"{folder}: cannot be read ({error}); give another path") from error
    indexes = [name for name in names if name.endswith(INDEX)]
    files = [name for name in names if name.endswith(".safetensors") and name[0] != "."]
    found = indexes or files
    if len(found) != 1:
        raise CaptureError(
            f"{folder}: a folder with {len(indexes)} indexes and {len(files)} safetensors files: "
            "give the path of one of them (a capture in shards without its index is not complete)"
        )
    return os.fspath(folder / found[0])
