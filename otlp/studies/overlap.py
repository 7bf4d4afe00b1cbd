"""Overlap of draft and target distributions, by row and by group of rows.

The overlap of a row is sum_i min(p_i, q_i), the acceptance rate of one draft token under
speculative sampling (Leviathan et al. 2023, Theorem 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from otlp.data.capture import Capture
from otlp.distribution import FloatArray, IntArray, entropy
from otlp.studies.estimate import Estimate, mean_over_units

MOST_PASSAGES = 6
"""Maximum number of passages shown: half with the lowest overlap, half with the highest."""

MOST_PLACES = 5
"""Maximum number of rows shown with the lowest overlap, and with the highest."""

MOST_CHARACTERS = 80
"""Maximum number of characters shown of a text."""


@dataclass(frozen=True)
class OverlapGroup:
    """Group of rows and their mean overlap.

    Attributes
    ----------
    by : str
        ``"all rows"``, ``"target entropy"``, ``"position"`` or ``"passage"``.
    label : str
        A range of entropies in nats, a range of positions, or the text before the first row of the
        passage.
    rows : int
        Number of rows.
    overlap : Estimate
        Mean over the rows; passages are the independent units of the interval.
    """

    by: str
    label: str
    rows: int
    overlap: Estimate

    def record(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        found = asdict(self) | {"overlap": self.overlap.record()}
        return {"row_count" if name == "rows" else name: value for name, value in found.items()}


@dataclass(frozen=True)
class Place:
    """One row and its text.

    Attributes
    ----------
    row : int
        Number of the row in the capture.
    overlap : float
    target_entropy : float
        Entropy of the target, in nats.
    text : str
        End of the text before the row; empty if unknown.
    continuation : str
        Text of the next token, known if the next row of the capture is the next token of the text.
    """

    row: int
    overlap: float
    target_entropy: float
    text: str
    continuation: str


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Overlap and entropies of some rows of a capture.

    Attributes
    ----------
    capture : Capture
    rows : ndarray of int64, shape (rows,)
        Numbers of the rows in the capture.
    overlap, target_entropy, draft_entropy : ndarray, shape (rows,)
        Overlap of each row, and entropies in nats.
    """

    capture: Capture
    rows: IntArray
    overlap: FloatArray
    target_entropy: FloatArray
    draft_entropy: FloatArray

    def groups(self) -> Iterator[OverlapGroup]:
        """Yield all rows, quarters by entropy, quarters by position, then passages."""
        every = np.ones(self.rows.size, dtype=bool)
        yield self._group("all rows", "", every)
        for mask in _quarters(self.target_entropy):
            least, most = self.target_entropy[mask].min(), self.target_entropy[mask].max()
            yield self._group("target entropy", f"{least:.2f} to {most:.2f} nats", mask)
        positions = np.asarray(self.capture.positions)[self.rows]
        if (positions >= 0).all():
            for mask in _quarters(positions.astype(np.float64)):
                least, most = positions[mask].min(), positions[mask].max()
                yield self._group("position", f"{least} to {most}", mask)
        yield from self._passages()

    def _passages(self) -> Iterator[OverlapGroup]:
        """Yield the passages of lowest and highest overlap, unless every passage has one row."""
        units = self._units
        numbers, places, sizes = np.unique(units, return_inverse=True, return_counts=True)
        if sizes.max(initial=0) < 2:
            return
        ranked = np.argsort(np.bincount(places, self.overlap) / sizes, kind="stable")
        if ranked.size > MOST_PASSAGES:
            half = MOST_PASSAGES // 2
            ranked = np.concatenate([ranked[:half], ranked[-half:]])
        for place in ranked:
            mask = units == numbers[place]
            row = int(self.rows[mask][0])
            before = str(self.capture.contexts[row])[-MOST_CHARACTERS:]
            yield self._group("passage", before or f"the passage of row {row}", mask)

    def places(self) -> tuple[list[Place], list[Place]]:
        """Return the rows of lowest overlap, in ascending order, and of highest, in descending."""
        ranked = np.argsort(self.overlap, kind="stable")
        most = min(MOST_PLACES, ranked.size // 2)
        ends = ranked[:most], ranked[::-1][:most]
        lowest, highest = ([self._place(int(at)) for at in some] for some in ends)
        return lowest, highest

    @property
    def _units(self) -> IntArray:
        return self.capture.passages[self.rows]

    def _group(self, by: str, label: str, mask: FloatArray) -> OverlapGroup:
        mean, size = mean_over_units(self.overlap[mask], self._units[mask])
        return OverlapGroup(by, label, size, mean)

    def _place(self, at: int) -> Place:
        row, capture = int(self.rows[at]), self.capture
        text, continuation = str(capture.contexts[row]), ""
        if row + 1 < len(capture) and capture.positions[row + 1] == capture.positions[row] + 1:
            after = str(capture.contexts[row + 1])
            continuation = after[len(text) :] if after.startswith(text) else ""
        numbers = float(self.overlap[at]), float(self.target_entropy[at])
        return Place(row, *numbers, text[-MOST_CHARACTERS:], continuation[:MOST_CHARACTERS])


def measure_overlaps(
    capture: Capture, rows: Sequence[int], progress: Callable[[], object] = lambda: None
) -> Overlaps:
    """Measure overlap and entropies at temperature 1.

    Parameters
    ----------
    capture : Capture
    rows : sequence of int
        Numbers of rows.
    progress : callable
        Called after each row.

    Returns
    -------
    Overlaps

    Raises
    ------
    RowOutOfRangeError
        If the capture has no such row.

    Notes
    -----
    O(rows V).

    Examples
    --------
    >>> from otlp import captures
    >>> from otlp.studies.overlap import measure_overlaps
    >>> found = measure_overlaps(captures.builtin(), range(100))
    >>> [f"{group.label}: {group.overlap}" for group in found.groups()][1]
    '0.01 to 0.47 nats: 0.57 ±0.13'
    """
    found = []
    for row in rows:
        p, q = capture.distributions(row)
        found.append((np.minimum(p, q).sum(), entropy(p), entropy(q)))
        progress()
    columns = np.reshape(found, (-1, 3)).astype(np.float64).T
    return Overlaps(capture, np.asarray(rows, dtype=np.int64), *columns)


def _quarters(values: FloatArray) -> Iterator[FloatArray]:
    """Yield masks of the four quarters of the values; equal values stay together."""
    if not values.size:
        return
    edges = np.quantile(values, [0.25, 0.5, 0.75])
    places = np.searchsorted(edges, values)
    for place in range(4):
        if (places == place).any():
            yield places == place
