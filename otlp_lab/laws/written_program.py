"""Linear programs built entry by entry and solved by HiGHS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import numpy as np
import scipy

from otlp.errors import OTLPError


class WrittenProgram:
    """Linear program with nonnegative variables, built entry by entry.

    Parameters
    ----------
    what : str
        Name of the program for error messages.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.columns: dict[Hashable, int] = {}
        self.gains: defaultdict[int, float] = defaultdict(float)
        self.entries: list[tuple[int, int, float]] = []
        self.right: list[float] = []
        self.at_most: list[bool] = []

    def row(self, right: float = 0.0, *, at_most: bool = False) -> int:
        """Add a constraint with right-hand side `right`, an equality or (`at_most`) <=."""
        self.right.append(right)
        self.at_most.append(at_most)
        return len(self.right) - 1

    def add(self, row: int, column: Hashable, value: float) -> None:
        """Add a coefficient; coefficients at the same position are summed."""
        self.entries.append((row, self._number(column), value))

    def gain(self, column: Hashable, value: float) -> None:
        """Add `value` to the objective coefficient of a column."""
        self.gains[self._number(column)] += value

    def _number(self, column: Hashable) -> int:
        return self.columns.setdefault(column, len(self.columns))

    def largest(self) -> float:
        """Return the maximum of the objective.

        Raises
        ------
        OTLPError
            If HiGHS finds no optimum.
        """
        rows, columns, values = zip(*self.entries, strict=True)
        size = len(self.right), len(self.columns)
        matrix = scipy.sparse.csr_matrix((values, (rows, columns)), size)
        below, right = np.array(self.at_most), np.array(self.right)
        found = scipy.optimize.linprog(
            [-self.gains[column] for column in range(size[1])],
            A_ub=matrix[below],
            b_ub=right[below],
            A_eq=matrix[~below],
            b_eq=right[~below],
            method="highs",
        )
        if found.x is None:
            raise OTLPError(f"the linear program of {self.what} failed: {found.message}")
        return -float(found.fun)
