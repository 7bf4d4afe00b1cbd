"""Pairs p and q of a user's own: files of NumPy and tables of text, as captures."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.checks import as_array, check_choice
from otlp.data.capture import Capture
from otlp.distribution import FloatArray, as_distribution, softmax
from otlp.errors import CaptureError, InvalidInputError

Values: TypeAlias = Literal["probabilities", "logits"]

NAMES = (
    ("p", "q"),
    ("target", "draft"),
    ("target_probs", "draft_probs"),
    ("target_logits", "draft_logits"),
)
"""Arrays of an .npz file, and headings of a table, by which the two are known."""

TAKEN = (
    "taken are captures (.safetensors, of otlp.captures.save or `otlp capture`), and pairs of p "
    "and q: .npz with arrays p and q, (V,) or (rows, V), as of numpy.savez('mine.npz', p=p, q=q), "
    ".npy of shape (2, V) or (rows, 2, V), .csv with a column each"
)

ROUNDING = 1e-3
"""How far the sum of a column of text may be off one, since its digits are few."""

MOST_PADDING = 1e-3
"""Probability of the tokens beyond the shorter vocabulary, up to which they are padding."""


def from_arrays(
    p: npt.ArrayLike,
    q: npt.ArrayLike,
    values: Values = "probabilities",
    *,
    source: str = "arrays",
    padded: bool = False,
) -> Capture:
    """A capture of distributions, or of logits, in float64.

    Parameters
    ----------
    p, q : array_like, shape (V,) or (rows, V)
        Of the target and of the draft.
    values : {"probabilities", "logits"}
    source : str
        What they come from.
    padded : bool
        Whether the vocabularies may have different sizes, as models do whose embeddings are padded
        to a round number: tokens beyond the shorter one have probability 0 in both.

    Returns
    -------
    Capture
        ``capture.distributions(row)`` are the rows of p and q again, to a rounding.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If the shapes do not fit together, or a row is no distribution, or what is cut is no
        padding.

    Examples
    --------
    >>> from otlp.data.pairs import from_arrays
    >>> from_arrays([0.1, 0.6, 0.3], [0.5, 0.3, 0.2]).distributions(0)[0].round(3).tolist()
    [0.1, 0.6, 0.3]
    """
    check_choice("values", values, ("probabilities", "logits"))
    laws = {"p": _rows(p, "p", values), "q": _rows(q, "q", values)}
    sizes = {name: law.shape[1] for name, law in laws.items()}
    least, note = min(sizes.values()), ""
    if len(set(sizes.values())) > 1:
        if not padded:
            raise InvalidInputError(
                f"{source}: p has {sizes['p']} tokens and q {sizes['q']}: if the longer one is "
                "padded, pass --pad-vocabulary, by which tokens beyond the shorter one have "
                "probability 0 in both"
            )
        longer = max(sizes, key=sizes.__getitem__)
        cut = float(laws[longer][:, least:].sum(axis=1).max())
        note = (
            f"Tokens from {least} on are taken to have probability 0 in both models; in {longer} "
            f"they had up to {cut:.3g} in a row."
        )
        laws = {name: _unpadded(law, least, name, source) for name, law in laws.items()}
    if len(laws["p"]) != len(laws["q"]):
        raise InvalidInputError(
            f"{source}: p has {len(laws['p'])} rows and q {len(laws['q'])}: give as many of both"
        )
    with np.errstate(divide="ignore"):  # of tokens of probability 0
        logits = {name: np.log(law) for name, law in laws.items()}
    return Capture(
        target_logits=logits["p"],
        draft_logits=logits["q"],
        target_model="p",
        draft_model="q",
        tokenizer="",
        source=source,
        synthetic=False,
        note=note,
    )


def read_pairs(path: str, values: Values = "probabilities", padded: bool = False) -> Capture:
    """Read pairs of a file, by its ending.

    Raises
    ------
    CaptureError
        If the file cannot be read, or does not hold a pair; the message says what is taken.
    InvalidInputError
        As of `from_arrays`.
    """
    try:
        p, q, named = READERS[Path(path).suffix.lower()](path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CaptureError(f"{path}: no pairs of p and q ({error}); {TAKEN}") from None
    if values == "logits" and named[0].endswith("_probs"):
        raise CaptureError(f"{path}: {' and '.join(named)} are no logits: leave out --logits")
    kind: Values = "logits" if named == NAMES[-1] else values
    if kind == "probabilities" and path.lower().endswith(".csv"):
        p, q = (np.where(abs(one.sum() - 1.0) < ROUNDING, one / one.sum(), one) for one in (p, q))
    return from_arrays(p, q, kind, source=path, padded=padded)


Pair: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[str, str]]


def _npz(path: str) -> Pair:
    with np.load(path, allow_pickle=False) as found:
        return _by_name(found)


def _by_name(found: Mapping[str, npt.NDArray[Any]]) -> Pair:
    for one, other in NAMES:
        if one in found and other in found:
            return found[one], found[other], (one, other)
    known = ", ".join(f"{one} and {other}" for one, other in NAMES)
    raise ValueError(f"it has {', '.join(found) or 'nothing'}, and not {known}")


def _npy(path: str) -> Pair:
    found = np.load(path, allow_pickle=False)
    if found.ndim not in (2, 3) or found.shape[-2] != 2:
        raise ValueError(f"its shape is {found.shape}")
    return found[..., 0, :], found[..., 1, :], NAMES[0]


def _csv(path: str) -> Pair:
    """A line a token, with or without headings."""
    with open(path, encoding="utf-8-sig") as file:
        lines = [line.strip() for line in file if line.strip()]
    first = lines[0] if lines else ""
    mark = next((one for one in ";\t" if one in first), ",")
    words = [word.strip().lower() for word in first.split(mark)]
    headed = any(word.isidentifier() and word not in ("nan", "inf") for word in words)
    if len(lines) <= headed:
        raise ValueError("it has no numbers")
    table = np.loadtxt(lines[headed:], delimiter=mark, ndmin=2)
    if headed:
        if len(words) != table.shape[1] or len(set(words)) < len(words):
            raise ValueError(
                f"its {table.shape[1]} columns have the headings {', '.join(words)}: each column "
                "must have one of its own"
            )
        return _by_name(dict(zip(words, table.T, strict=True)))
    if table.shape[1] != 2:
        raise ValueError(f"it has {table.shape[1]} columns, and must have two, or headings")
    return table[:, 0], table[:, 1], NAMES[0]


READERS = {".npz": _npz, ".npy": _npy, ".csv": _csv}


def _rows(given: npt.ArrayLike, name: str, values: Values) -> FloatArray:
    """Distributions, shape (rows, V)."""
    numbers = np.atleast_2d(as_array(given, name))
    if numbers.ndim != 2 or not numbers.size:
        raise InvalidInputError(f"{name} has shape {numbers.shape}: it must be (V,) or (rows, V)")
    if values == "logits":
        return softmax(np.asarray(numbers, dtype=np.float64))
    try:
        return np.stack([as_distribution(row, name) for row in numbers])
    except InvalidInputError as error:
        raise type(error)(f"{error}; if these are logits, pass --logits") from None


def _unpadded(law: FloatArray, size: int, name: str, source: str) -> FloatArray:
    beyond = float(law[:, size:].sum(axis=1).max())
    if beyond > MOST_PADDING:
        raise InvalidInputError(
            f"{source}: tokens from {size} on have probability {beyond:.3g} in a row of {name}, "
            f"more than {MOST_PADDING:g}: that is no padding; these are two vocabularies"
        )
    kept: FloatArray = law[:, :size] / law[:, :size].sum(axis=1, keepdims=True)
    return kept
