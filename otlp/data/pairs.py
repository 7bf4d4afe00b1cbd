"""Pairs p and q of a user's own: files of NumPy and tables of text, as captures."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
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

WHOLE, DECIMAL_COMMA = re.compile(r"[+-]?\d+"), re.compile(r"(^|[^\d.])[+-]?\d*,\d")
"""A whole number, and a number with a decimal comma, in a table of text."""

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
        padding, or logits are of one token.

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
        If the file cannot be read, or does not hold a pair, or may be read in two ways; the
        message says what is taken.
    InvalidInputError
        As of `from_arrays`.
    """
    try:
        p, q, named = READERS[Path(path).suffix.lower()](path, values)
    except Exception as error:  # of damaged archives, readers raise what they like
        reason = str(error) or type(error).__name__
        raise CaptureError(f"{path}: no pairs of p and q ({reason}); {TAKEN}") from None
    if values == "logits" and named[0].endswith("_probs"):
        raise CaptureError(f"{path}: {' and '.join(named)} are no logits: leave out --logits")
    kind: Values = "logits" if named == NAMES[-1] else values
    if kind == "probabilities" and path.lower().endswith(".csv"):
        with np.errstate(all="ignore"):  # what is no distribution is refused below
            p, q = (
                np.where(abs(one.sum() - 1.0) < ROUNDING, one / one.sum(), one) for one in (p, q)
            )
    try:
        found = from_arrays(p, q, kind, source=path, padded=padded)
    except InvalidInputError as error:
        said = str(error).removeprefix(f"{path}: ")
        raise type(error)(f"{path}: {said}") from None
    rows = "1 row" if len(found) == 1 else f"{len(found):,} rows"
    one, other = (f"'{name}'" if name.isidentifier() else name for name in named)
    read = f"{path}: {rows} of {found.vocab_size:,} tokens, {kind}; p is {one}, q {other}."
    return replace(found, note=f"{read} {found.note}".rstrip())


Pair: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[str, str]]
"""Arrays p and q, and what each is in the file."""


def _npz(path: str, values: Values) -> Pair:
    with np.load(path, allow_pickle=False) as found:
        return _by_name(found)


def _by_name(found: Mapping[str, npt.NDArray[Any]]) -> Pair:
    for one, other in NAMES:
        if one in found and other in found:
            return found[one], found[other], (one, other)
    known = ", ".join(f"{one} and {other}" for one, other in NAMES)
    raise ValueError(f"it has {', '.join(found) or 'nothing'}, and not {known}")


def _npy(path: str, values: Values) -> Pair:
    found = np.load(path, allow_pickle=False)
    if found.ndim not in (2, 3) or found.shape[-2] != 2:
        raise ValueError(f"its shape is {found.shape}")
    if found.shape[:2] == (2, 2) and not np.array_equal(found, np.swapaxes(found, 0, 1)):
        raise ValueError(f"its shape {found.shape} may be read in two ways")
    return found[..., 0, :], found[..., 1, :], ("its first array", "its second")


def _csv(path: str, values: Values) -> Pair:
    """A line a token, with or without headings."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    first = lines[0].lstrip("# ") if lines else ""
    mark = next((one for one in ";\t" if one in first), ",")
    words = [word.strip().lower() for word in next(csv.reader([first], delimiter=mark), [])]
    headed = any(word.isidentifier() and word not in ("nan", "inf") for word in words)
    if len(lines) <= headed:
        raise ValueError("it has no numbers")
    numbers = lines[headed:]
    try:
        table = np.loadtxt(numbers, delimiter=mark, comments=None, quotechar='"', ndmin=2)
    except ValueError as error:
        raise ValueError(_cause(words, numbers, mark) or str(error)) from None
    if headed:
        if len(words) != table.shape[1] or len(set(words)) < len(words):
            raise ValueError(
                f"its {table.shape[1]} columns have the headings {', '.join(words)}: each column "
                f"must have one of its own{_decimal_commas(numbers, mark)}"
            )
        return _by_name(dict(zip(words, table.T, strict=True)))
    if table.shape[1] != 2:
        raise ValueError(
            f"it has {table.shape[1]} columns, and must have two, or headings"
            f"{_decimal_commas(numbers, mark)}"
        )
    _check_unheaded(first, words, table, values)
    return table[:, 0], table[:, 1], ("its first column", "its second")


def _cause(words: list[str], lines: list[str], mark: str) -> str:
    """Why a table is no table of numbers, where that can be seen."""
    if "" in words and all(WHOLE.fullmatch(word) for word in words if word):
        return f"its first line, {mark.join(words)}, may be headings: write p,q in place of it"
    if mark != "," and any(DECIMAL_COMMA.search(line) for line in lines):
        return "its numbers have decimal commas: write points"
    if mark == "," and all(len(line.split()) > 1 and "," not in line for line in lines):
        return "its columns stand between spaces: write commas"
    return ""


def _decimal_commas(lines: list[str], mark: str) -> str:
    """What else there may be too many columns for."""
    whole = mark == "," and all("." not in line for line in lines)
    return "; where its numbers have decimal commas, write points" if whole else ""


def _check_unheaded(first: str, words: list[str], table: FloatArray, values: Values) -> None:
    """Refuse what may be headings, line numbers or halves of numbers, if no sum tells.

    Raises
    ------
    ValueError
    """
    numbered = table[0].tolist() in ([0.0, 1.0], [1.0, 2.0])
    sums = np.abs(table.sum(axis=0) - 1.0)
    if values == "probabilities" and (sums < ROUNDING).all():
        return
    if numbered or (values == "logits" and all(WHOLE.fullmatch(word) for word in words)):
        raise ValueError(
            f"its first line, {first.strip()}, may be headings: write p,q above the numbers, in "
            "place of it or before it"
        )
    for number, column in enumerate(table.T, 1):
        counted = np.arange(len(column)) + column[0]
        if len(column) > 2 and column[0] in (0.0, 1.0) and np.array_equal(column, counted):
            raise ValueError(
                f"its column {number} numbers the lines: give the columns headings, p and q"
            )


READERS = {".npz": _npz, ".npy": _npy, ".csv": _csv}


def _rows(given: npt.ArrayLike, name: str, values: Values) -> FloatArray:
    """Distributions, shape (rows, V)."""
    numbers = np.atleast_2d(as_array(given, name))
    if numbers.ndim != 2 or not numbers.size:
        raise InvalidInputError(f"{name} has shape {numbers.shape}: it must be (V,) or (rows, V)")
    if values == "logits":
        if numbers.shape[1] == 1:
            raise InvalidInputError(
                f"{name} has shape {np.shape(given)}: that is {len(numbers)} rows of one token, "
                f"whose probability is 1 whatever its logit; one row of many tokens is {name}[:, 0]"
            )
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
