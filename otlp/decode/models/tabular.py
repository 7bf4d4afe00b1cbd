"""Language model stored as tables of the distribution after every prefix, for exact tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otlp.checks import is_a, number, real_array, token_ids, whole_number
from otlp.decode.models.text_model import TextModel
from otlp.decode.tree import TokenTree
from otlp.distribution import SUM_TOLERANCE, FloatArray, IntArray, as_distribution, softmax
from otlp.errors import InvalidInputError


class TabularModel(TextModel):
    """Model with a table of next-token distributions for every prefix shorter than `length`.

    Parameters
    ----------
    tables : sequence of array_like
        ``tables[t]`` has shape (V, ..., V) with t + 1 axes; its last axis holds the distribution
        after each prefix of t tokens.
    name : str
        Name of the model.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If a table has the wrong shape or a row is not a distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> model = decode.TabularModel([[0.9, 0.1], [[0.5, 0.5], [0.2, 0.8]]])
    >>> model.distribution((1,)).tolist(), model.vocab_size, model.length
    ([0.2, 0.8], 2, 2)
    """

    def __init__(self, tables: Sequence[npt.ArrayLike], name: str = "tabular") -> None:
        if not isinstance(tables, Sequence) or not len(tables):
            raise InvalidInputError("tables must be a list of tables, with tables[0] of shape (V,)")
        self.tables: list[FloatArray] = []
        for depth, given in enumerate(tables):
            table = real_array(given, f"tables[{depth}]", depth + 1)
            size = self.tables[0].size if depth else table.size
            if table.shape != (size,) * (depth + 1):
                raise InvalidInputError(
                    f"tables[{depth}] must have shape {(size,) * (depth + 1)}, got {table.shape}"
                )
            self.tables.append(_distributions(table.astype(np.float64, "C"), f"tables[{depth}]"))
        super().__init__(self.tables[0].size, name)

    @property
    def length(self) -> int:
        """Number of tokens that the tables cover."""
        return len(self.tables)

    def distribution(self, prefix: Sequence[int] | IntArray) -> FloatArray:
        """Return the next-token distribution after a prefix, shape (V,).

        Raises
        ------
        InvalidInputError
            If the prefix has `length` tokens or more.
        """
        prefix = token_ids(prefix, "the prefix", self.vocab_size).tolist()
        if len(prefix) >= self.length:
            raise InvalidInputError(
                f"the prefix must have at most {self.length - 1} tokens, got {len(prefix)}: "
                "make a tabular model with a greater length"
            )
        found: FloatArray = self.tables[len(prefix)][tuple(prefix)]
        return found

    def joint(self, length: int) -> FloatArray:
        """Return the distribution of the first `length` tokens, shape (V, ..., V), `length` axes.

        Raises
        ------
        InvalidInputError
            If `length` exceeds the tables.
        """
        if whole_number(length, "length", 0) > self.length:
            raise InvalidInputError(f"the tables cover {self.length} tokens, got length {length}")
        joint: FloatArray = np.ones(())
        for table in self.tables[:length]:
            joint = joint[..., None] * table
        return joint

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return the table rows after the given nodes, shape (m, V)."""
        return self._distributions_after(tree, nodes)


def _distributions(rows: FloatArray, name: str) -> FloatArray:
    """Normalise all rows at once; raise an error that names the first invalid row."""
    with np.errstate(over="ignore", invalid="ignore"):
        totals = np.add.reduce(rows, axis=-1)
    valid = np.minimum.reduce(rows, axis=-1, initial=0.0) >= 0.0
    valid &= np.abs(totals - 1.0) <= SUM_TOLERANCE[8]
    if not valid.all():
        first = np.unravel_index(np.argmin(valid), valid.shape)
        as_distribution(rows[first], name + "".join(f"[{token}]" for token in first))
    normalised: FloatArray = rows / totals[..., None]
    return normalised


MOST_NUMBERS = 10**8
"""Maximum number of entries in the largest table of a random model."""


def random_pair(
    vocab_size: int,
    length: int,
    rng: np.random.Generator,
    *,
    spread: float = 1.5,
    noise: float = 1.0,
) -> tuple[TabularModel, TabularModel]:
    """Make a random draft and target model.

    Parameters
    ----------
    vocab_size : int
        Vocabulary size V, at least 1.
    length : int
        Number of tokens that the tables cover, at least 1; V^length numbers per model.
    rng : numpy.random.Generator
    spread : float
        Standard deviation of the target's logits.
    noise : float
        Standard deviation of the difference between the draft's and the target's logits.

    Returns
    -------
    draft, target : TabularModel

    Raises
    ------
    InvalidInputError
        If `vocab_size` or `length` is less than 1, V^length is above `MOST_NUMBERS`, or an argument
        has the wrong type.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, target = decode.random_pair(4, 3, np.random.default_rng(0))
    >>> draft.vocab_size, target.distribution((0, 1)).shape
    (4, (4,))
    """
    whole_number(vocab_size, "vocab_size")
    whole_number(length, "length")
    if length > MOST_NUMBERS or length * math.log(vocab_size) > math.log(MOST_NUMBERS):
        raise InvalidInputError(
            f"vocab_size^length must be at most {MOST_NUMBERS:,} (numbers per model): use a "
            "smaller vocabulary or length"
        )
    is_a(rng, np.random.Generator, "rng")
    number(spread, "spread", 0.0)
    number(noise, "noise", 0.0)
    logits = [spread * rng.standard_normal((vocab_size,) * (t + 1)) for t in range(length)]
    noisy = [given + noise * rng.standard_normal(given.shape) for given in logits]
    return (
        TabularModel([softmax(given) for given in noisy], "draft"),
        TabularModel([softmax(given) for given in logits], "target"),
    )
