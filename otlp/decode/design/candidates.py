"""Draftings that may be chosen: families of them by name, and what one of them would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from otlp.decode.design.text_renewal import Renewal
from otlp.decode.drafting import (
    Drafting,
    adaptive_branching,
    adaptive_depth,
    iid_paths,
    mixed_shape,
    mixed_tree,
    tree_shape,
)
from otlp.decode.drafting.mixed import count_slots

FAMILIES: dict[str, Callable[..., Drafting]] = {
    "paths": iid_paths,
    "tree": lambda *parents: tree_shape(parents, "iid"),
    "mixed": lambda *branching: mixed_tree(branching),
    "mixed-shape": lambda *shape: mixed_shape(shape),
    "adaptive-branching": adaptive_branching,
    "adaptive-depth": adaptive_depth,
}
"""From the parameters of a candidate to the drafting.

Examples
--------
>>> from otlp.decode.design import FAMILIES
>>> FAMILIES["paths"](4, 2).paths
4
"""


@dataclass(frozen=True)
class Candidate:
    """One drafting, and what it would give.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    parameters : tuple
        Of that family.
    nodes : float
        Drafted tokens a round, repeated ones included: the most, or for adaptive depth the mean.
    depth : int
        Length of the longest path, so the number of draft calls.
    efficiency, error : float
        Tokens a target call by text renewal, and its standard error over the texts.

    Examples
    --------
    >>> from otlp.decode.design import Candidate
    >>> one = Candidate("paths", (2, 3), nodes=6, depth=3, efficiency=2.1, error=0.1)
    >>> str(one), one.drafting.paths
    ('iid_paths(2, 3)', 2)
    """

    family: str
    parameters: tuple[Any, ...]
    nodes: float
    depth: int
    efficiency: float
    error: float

    @property
    def drafting(self) -> Drafting:
        """The drafting itself."""
        return FAMILIES[self.family](*self.parameters)

    def __str__(self) -> str:
        """Write the call of `otlp.decode` that makes the drafting."""
        plain = ", ".join(map(str, self.parameters))
        return {
            "paths": f"iid_paths({plain})",
            "tree": f'tree_shape([{plain}], "iid")',
            "mixed": f"mixed_tree([{plain}])",
            "mixed-shape": f"mixed_shape({self.parameters})",
            "adaptive-branching": f"adaptive_branching({plain})",
            "adaptive-depth": f"adaptive_depth({plain})",
        }[self.family]


def candidate(
    family: str, parameters: tuple[Any, ...], nodes: float, depth: int, renewal: Renewal
) -> Candidate:
    """What a drafting gives by the renewal of some texts; one text has no standard error."""
    error = renewal.error
    return Candidate(
        family, parameters, nodes, depth, renewal.efficiency, error if isfinite(error) else 0.0
    )


def most_nodes(family: str, parameters: tuple[Any, ...]) -> int:
    """Drafted tokens of a round at most, of a family that is no paths."""
    if family == "tree":
        return len(parameters) - 1
    if family == "mixed":
        return int(np.cumprod([sum(pair) for pair in parameters]).sum())
    if family == "mixed-shape":
        return count_slots(parameters) - 1
    return int(parameters[0])


def tuples(value: Any) -> Any:
    """Parameters as they were, from the lists that JSON makes of them."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value
