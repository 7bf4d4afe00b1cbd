"""Captures from files with pairs of p and q: NumPy files and CSV tables."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
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
"""Names of the target and the draft in .npz files and in headings of tables."""

SUPPORTED = (
    "use a capture (.safetensors, from otlp.captures.save or `otlp capture`), or pairs of p and q: "
    ".npz with arrays p and q, (V,) or (rows, V), as from numpy.savez('mine.npz', p=p, q=q), "
    ".npy of shape (2, V) or (rows, 2, V), .csv with columns p and q"
)

ROUNDING = 1e-3
"""Largest deviation from 1 of the sum of a column of a table, which is rounded to few digits."""

WHOLE, DECIMAL_COMMA = re.compile(r"[+-]?\d+"), re.compile(r"(^|[^\d.])[+-]?\d*,\d")
"""Patterns of an integer and of a number with a decimal comma in a table."""

MOST_PADDING = 1e-3
"""Largest probability of the tokens beyond the shorter vocabulary that counts as padding."""


def from_arrays(
    p: npt.ArrayLike,
    q: npt.ArrayLike,
    values: Values = "probabilities",
    *,
    source: str = "arrays",
    padded: bool = False,
) -> Capture:
    """Return a capture of distributions or logits, in float64.

    Parameters
    ----------
    p, q : array_like, shape (V,) or (rows, V)
        Distributions or logits of the target and the draft.
    values : {"probabilities", "logits"}
        Type of p and q.
    source : str
        Name of the origin of p and q, used as label and in messages.
    padded : bool
        Whether p and q may have different vocabulary sizes, as models with padded embeddings do;
        tokens beyond the shorter vocabulary then get probability 0 in both.

    Returns
    -------
    Capture
        ``capture.distributions(row)`` returns the rows of p and q, up to rounding.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If the shapes differ, a row is not a distribution, tokens beyond the shorter vocabulary are
        too likely to be padding, or logits have only one token.

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
                f"{source}: p and q must have the same number of tokens, got {sizes['p']} and "
                f"{sizes['q']}; if the longer vocabulary is padded, pass --pad-vocabulary, which "
                "sets tokens beyond the shorter vocabulary to probability 0 in both"
            )
        longer = max(sizes, key=sizes.__getitem__)
        cut = float(laws[longer][:, least:].sum(axis=1).max())
        note = (
            f"Tokens from {least} on are assumed to have probability 0 in both models; in {longer} "
            f"their total probability was up to {cut:.3g} per row."
        )
        laws = {name: _unpadded(law, least, name, source) for name, law in laws.items()}
    if len(laws["p"]) != len(laws["q"]):
        raise InvalidInputError(
            f"{source}: p and q must have the same number of rows, got {len(laws['p'])} and "
            f"{len(laws['q'])}"
        )
    with np.errstate(divide="ignore"):  # The logarithm of 0 is -inf.
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
    """Read pairs of p and q from a file of type .npz, .npy or .csv.

    Raises
    ------
    CaptureError
        If the file cannot be read, has no pair, or is ambiguous; the message lists the supported
        files.
    InvalidInputError
        As raised by `from_arrays`.
    """
    try:
        p, q, named = READERS[Path(path).suffix.lower()](path, values)
    except Exception as error:  # Readers raise many types of errors for damaged archives.
        reason = str(error) or type(error).__name__
        raise CaptureError(f"{path}: cannot read p and q ({reason}); {SUPPORTED}") from None
    kind: Values = "logits" if named == NAMES[-1] else values
    if kind == "probabilities" and path.lower().endswith(".csv"):
        with np.errstate(all="ignore"):  # Invalid distributions are refused below.
            p, q = (
                np.where(abs(one.sum() - 1.0) < ROUNDING, one / one.sum(), one) for one in (p, q)
            )
    try:
        found = from_arrays(p, q, kind, source=path, padded=padded)
    except InvalidInputError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise type(error)(f"{path}: {message}") from None
    if kind == "logits" and (named[0].endswith("_probs") or _are_distributions(p, q)):
        mend = "leave out --logits" if values == "logits" else "rename them p and q"
        raise CaptureError(f"{path}: {' and '.join(named)} are probabilities, not logits; {mend}")
    rows = "1 row" if len(found) == 1 else f"{len(found):,} rows"
    one, other = (f"'{name}'" if name.isidentifier() else name for name in named)
    read = f"{path}: {rows} of {found.vocab_size:,} tokens, {kind}; p is {one}, q {other}."
    return replace(found, note=f"{read} {found.note}".rstrip())


Pair: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[str, str]]
"""Arrays p and q, and the name of each in the file."""


def _npz(path: str, values: Values) -> Pair:
    with np.load(path, allow_pickle=False) as found:
        return _by_name(found)


def _by_name(found: Mapping[str, npt.NDArray[Any]]) -> Pair:
    pairs = [pair for pair in NAMES if found.keys() >= {*pair}]
    if len(pairs) == 1:
        one, other = pairs[0]
        return found[one], found[other], pairs[0]
    if pairs:
        raise ValueError(f"there must be one pair, got {_listed(pairs)}")
    raise ValueError(f"arrays must be named {_listed(NAMES)}, got {', '.join(found) or 'none'}")


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(" and ".join(pair) for pair in pairs)


def _npy(path: str, values: Values) -> Pair:
    found = np.load(path, allow_pickle=False)
    if found.ndim not in (2, 3) or found.shape[-2] != 2:
        raise ValueError(f"shape must be (2, V) or (rows, 2, V), got {found.shape}")
    if found.shape[:2] == (2, 2) and not np.array_equal(found, np.swapaxes(found, 0, 1)):
        raise ValueError(f"shape {found.shape} is ambiguous: rows first, or p and q first")
    return found[..., 0, :], found[..., 1, :], ("the first array", "the second array")


def _csv(path: str, values: Values) -> Pair:
    """Read a table with one line per token, with or without headings."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    first = lines[0].lstrip("# ") if lines else ""
    mark = next((one for one in ";\t" if one in first), ",")
    words = [word.strip().lower() for word in next(csv.reader([first], delimiter=mark), [])]
    headed = any(word.isidentifier() and word not in ("nan", "inf") for word in words)
    if len(lines) <= headed:
        raise ValueError("the table has no numbers")
    numbers = lines[headed:]
    try:
        table = np.loadtxt(numbers, delimiter=mark, comments=None, quotechar='"', ndmin=2)
    except ValueError as error:
        raise ValueError(_cause(words, numbers, mark) or str(error)) from None
    if headed:
        if len(words) != table.shape[1] or len(set(words)) < len(words):
            raise ValueError(
                f"each of {table.shape[1]} columns must have its own heading, got "
                f"{', '.join(words)}{_decimal_commas(numbers, mark)}"
            )
        return _by_name(dict(zip(words, table.T, strict=True)))
    if table.shape[1] != 2:
        raise ValueError(
            f"a table without headings must have two columns, got {table.shape[1]}"
            f"{_decimal_commas(numbers, mark)}"
        )
    _check_unheaded(first, words, table, values)
    return table[:, 0], table[:, 1], ("the first column", "the second column")


def _cause(words: list[str], lines: list[str], mark: str) -> str:
    """Return the reason why a table cannot be parsed as numbers, or an empty text."""
    if "" in words and all(WHOLE.fullmatch(word) for word in words if word):
        return f"the first line, {mark.join(words)}, may be headings; replace it by p,q"
    if mark != "," and any(DECIMAL_COMMA.search(line) for line in lines):
        return "the numbers have decimal commas; write points"
    if mark == "," and all(len(line.split()) > 1 and "," not in line for line in lines):
        return "the columns are separated by spaces; write commas"
    return ""


def _decimal_commas(lines: list[str], mark: str) -> str:
    """Return a hint on decimal commas, if they may be the reason for too many columns."""
    whole = mark == "," and all("." not in line for line in lines)
    return "; if the numbers have decimal commas, write points" if whole else ""


def _check_unheaded(first: str, words: list[str], table: FloatArray, values: Values) -> None:
    """Check a table without headings, unless both columns sum to one.

    Raises
    ------
    ValueError
        If the first line may be headings, or a column may number the lines.
    """
    numbered = table[0].tolist() in ([0.0, 1.0], [1.0, 2.0])
    sums = np.abs(table.sum(axis=0) - 1.0)
    if values == "probabilities" and (sums < ROUNDING).all():
        return
    if numbered or (values == "logits" and all(WHOLE.fullmatch(word) for word in words)):
        raise ValueError(
            f"the first line, {first.strip()}, may be headings; write a line p,q above the "
            "numbers, and delete the first line if it is headings"
        )
    for number, column in enumerate(table.T, 1):
        counted = np.arange(len(column)) + column[0]
        if len(column) > 2 and column[0] in (0.0, 1.0) and np.array_equal(column, counted):
            raise ValueError(f"column {number} numbers the lines; add the headings p and q")


READERS = {".npz": _npz, ".npy": _npy, ".csv": _csv}


def _are_distributions(*laws: npt.NDArray[Any]) -> bool:
    """Return whether all rows are distributions of more than two tokens."""
    return all(
        law.shape[-1] > 2
        and (law >= 0.0).all()
        and (abs(law.sum(axis=-1, dtype=float) - 1.0) < ROUNDING).all()
        for law in laws
    )


def _rows(given: npt.ArrayLike, name: str, values: Values) -> FloatArray:
    """Return distributions of shape (rows, V)."""
    numbers = np.atleast_2d(as_array(given, name))
    if numbers.ndim != 2 or not numbers.size:
        raise InvalidInputError(f"{name} must have shape (V,) or (rows, V), got {numbers.shape}")
    if values == "logits":
        if numbers.shape[1] == 1:
            raise InvalidInputError(
                f"{name} must have at least two tokens, got shape {np.shape(given)}, which is "
                f"{len(numbers)} rows of one token; for one row of many tokens pass {name}[:, 0]"
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
            f"{source}: tokens from {size} on must have probability at most {MOST_PADDING:g} to "
            f"count as padding, got {beyond:.3g} in a row of {name}; the vocabularies differ"
        )
    kept: FloatArray = law[:, :size] / law[:, :size].sum(axis=1, keepdims=True)
    return kept
