"""Setting of the device loop: the drafting of a round, and its name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import mul
from typing import NamedTuple


class LoopSetting(NamedTuple):
    """A prefix tree (for example K paths) and the draft's temperature.

    Attributes
    ----------
    branching : tuple of int
        Children of each token by depth: K, 1, ..., 1 for K paths; empty (default) without a draft.
    draft_temperature : float, optional
        Default: the target's temperature.
    """

    branching: tuple[int, ...] = ()
    draft_temperature: float | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of drafted tokens at each depth."""
        return tuple(accumulate(self.branching, mul))

    @property
    def nodes(self) -> int:
        """Number of drafted tokens per round."""
        return sum(self.widths)

    @property
    def paths(self) -> int:
        """Number K of paths; 0 without a draft."""
        return self.widths[-1] if self.branching else 0

    @property
    def length(self) -> int:
        """Path length L; 0 without a draft."""
        return len(self.branching)

    @property
    def algorithm(self) -> str:
        """Name of the verification algorithm in the loop."""
        if max(self.branching[1:], default=1) > 1:
            return "tournament"
        return ("autoregressive", "block")[self.paths] if self.paths < 2 else "two-slice"

    @property
    def shape(self) -> str:
        """Text of the form K x L, or the branching of a tree."""
        if self.algorithm == "tournament":
            return "-".join(map(str, self.branching))
        return f"{self.paths} x {self.length}" if self.branching else "-"

    def __str__(self) -> str:
        """Return algorithm, shape and draft temperature."""
        if not self.branching:
            return "plain"
        drafted = self.draft_temperature
        at = "" if drafted is None else f", draft T {drafted:g}"
        return f"{self.algorithm} {self.shape}{at}"


PLAIN = LoopSetting()


def grid(
    paths: Iterable[int],
    lengths: Iterable[int],
    trees: Iterable[tuple[int, ...]] = (),
    draft_temperatures: Iterable[float | None] = (None,),
) -> list[LoopSetting]:
    """Return all combinations of K and L and all trees, at each draft temperature."""
    shapes = [(k, *[1] * (length - 1)) for k in paths for length in lengths] + list(trees)
    return [LoopSetting(one, drafted) for drafted in draft_temperatures for one in shapes]
