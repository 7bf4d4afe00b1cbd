"""Acceptance statistics of one pair of models: what each drafting would give on text of the target.

They are gathered once and kept: a small value that knows its pair and its sampling, goes through
JSON, and is all that `design` looks at.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from otlp.checks import check_choice, is_a, number, whole_number
from otlp.decode.drafting import (
    Drafting,
    delayed_paths,
    iid_paths,
    mixed_tree,
    top_tree,
    tree_shape,
)
from otlp.decode.models.model import Sampling
from otlp.decode.verification import Verification, find_verification
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, rate_ratio
from otlp_lab.design.adaptive import adaptive_branching, adaptive_depth
from otlp_lab.design.mixed_nodes import mixed_shape
from otlp_lab.json_files import from_json, read_as, to_json

FAMILIES: dict[str, Callable[..., Drafting]] = {
    "paths": iid_paths,
    "delayed": delayed_paths,
    "tree": tree_shape,
    "without-replacement": tree_shape,
    "mixed": mixed_tree,
    "mixed-shape": mixed_shape,
    "adaptive-branching": adaptive_branching,
    "adaptive-depth": adaptive_depth,
    "top": top_tree,
    "shared-noise": top_tree,
}
"""What makes the draftings of a family from a candidate's parameters.

Examples
--------
>>> from otlp_lab.design import FAMILIES
>>> FAMILIES["paths"](4, 2).paths
4
"""

RULES = {
    "paths": "two-slice",
    "top": "target-only",
    "without-replacement": "traversal",
    "shared-noise": "equality",
}
"""What verifies the trees of a family, where it is not `tournament`."""

FORMAT = "otlp-acceptance-3"


@dataclass(frozen=True)
class Candidate:
    """One drafting, and what it would give.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    parameters : tuple
        Of what makes the draftings of that family.
    nodes : float
        Drafted tokens a round, repeated ones included: the most, or for adaptive depth the mean.
    depth : int
        Length of the longest path, so the number of draft calls.
    efficiency, error : float
        Tokens a target call by text renewal, and its standard error over the texts.
    draft_temperature : float or None
        Of the draft where it samples; None is that of both models.
    tokens, calls : tuple of float
        The `Renewal` that `efficiency` is of: two candidates are compared text by text.  Empty if
        unknown.

    Raises
    ------
    InvalidInputError
        If there is no such family, no drafting of it has these parameters, or a number is out of
        its range.

    Examples
    --------
    >>> from otlp_lab.design import Candidate
    >>> one = Candidate("paths", (2, 3), nodes=6, depth=3, efficiency=2.1, error=0.1)
    >>> str(one), one.drafting.paths, one.verification.name
    ('iid_paths(2, 3)', 2, 'two-slice')
    """

    family: str
    parameters: tuple[Any, ...]
    nodes: float
    depth: int
    efficiency: float
    error: float
    draft_temperature: float | None = None
    tokens: tuple[float, ...] = ()
    calls: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_choice("family", self.family, FAMILIES)
        try:
            FAMILIES[self.family](*self.parameters)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"parameters of the family {self.family!r} are {self.parameters!r:.60}: no "
                f"drafting has these ({error!s:.200})"
            ) from error
        what = str(self)
        number(self.nodes, f"nodes of {what:.60}", 1.0)
        whole_number(self.depth, f"depth of {what:.60}", 1)
        number(self.efficiency, f"efficiency of {what:.60}", 1.0)
        number(self.error, f"error of {what:.60}", 0.0)
        Sampling().at(self.draft_temperature)
        for name in ("tokens", "calls"):
            is_a(getattr(self, name), tuple, f"{name} of {what:.60}")
            for value in getattr(self, name):
                number(value, f"{name} of {what:.60}", 0.0)
        if len(self.tokens) != len(self.calls):
            raise InvalidInputError(
                f"tokens and calls of {what:.60} must have one entry a text, got "
                f"{len(self.tokens)} and {len(self.calls)}"
            )

    def over(self, other: Candidate) -> Estimate:
        """Estimate the ratio of both efficiencies, paired by texts; NaN where these are unknown."""
        if not self.tokens or len(self.tokens) != len(other.tokens):
            return Estimate(self.efficiency / other.efficiency, math.nan, math.nan)
        sums = (self.tokens, self.calls, other.tokens, other.calls)
        return rate_ratio(*(np.array(some) for some in sums))

    @property
    def is_chain(self) -> bool:
        """Whether the candidate is a single i.i.d. path."""
        return self.family == "paths" and self.parameters[0] == 1

    @property
    def verification(self) -> Verification:
        """The rule that the prediction is of."""
        return find_verification(RULES.get(self.family, "tournament"))

    @property
    def drafting(self) -> Drafting:
        """The drafting itself."""
        return FAMILIES[self.family](*self.parameters)

    def __str__(self) -> str:
        """Write the call of `otlp.decode` that makes the drafting."""
        return f"{FAMILIES[self.family].__name__}({', '.join(map(repr, self.parameters))})"


@dataclass(frozen=True)
class Statistics:
    """What draftings would give for one pair of models and one way of sampling.

    Attributes
    ----------
    draft, target : str
        Names of the models.
    sampling : Sampling
        Of both models, and of the text.
    texts, tokens : int
        How many texts, and how many tokens these have together.
    candidates : tuple of Candidate
        Not empty.
    models : str
        A fingerprint of the models, or of the rows of a capture; empty where it is not known.

    Raises
    ------
    InvalidInputError
        If there is no candidate, or a value is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, Statistics, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> statistics.texts, statistics.tokens
    (2, 16)
    >>> Statistics.from_json(statistics.to_json()) == statistics
    True
    """

    draft: str
    target: str
    sampling: Sampling
    texts: int
    tokens: int
    candidates: tuple[Candidate, ...]
    models: str = ""

    def __post_init__(self) -> None:
        is_a(self.sampling, Sampling, "sampling")
        for name in ("draft", "target", "models"):
            is_a(getattr(self, name), str, name)
        for name in ("texts", "tokens"):
            whole_number(getattr(self, name), name)
        if not self.candidates:
            raise InvalidInputError(
                "the acceptance statistics are empty: gather them from text that the target wrote"
            )
        for one in self.candidates:
            is_a(one, Candidate, "a candidate")

    def check_models(self, target: str, draft: str, sampling: Sampling) -> None:
        """Refuse models, by their names, and a sampling that the statistics are not of.

        Raises
        ------
        InvalidInputError
            Naming both pairs and both ways of sampling.
        """
        is_a(target, str, "target")
        is_a(draft, str, "draft")
        is_a(sampling, Sampling, "sampling")
        if (target, draft, sampling) != (self.target, self.draft, self.sampling):
            raise InvalidInputError(
                f"the statistics are of target {self.target} with draft {self.draft} and "
                f"{self.sampling}, not of target {target} with draft {draft} and {sampling}: "
                "gather them for these"
            )

    def to_json(self) -> str:
        """Write everything as JSON."""
        return to_json(self, FORMAT)

    @classmethod
    def from_json(cls, text: str) -> Statistics:
        """Read what `to_json` wrote.

        Raises
        ------
        InvalidInputError
            If it is something else, or a value is out of its range.
        """

        def make(found: dict[str, Any]) -> Statistics:
            found["sampling"] = Sampling(**found["sampling"])
            found["candidates"] = tuple(
                Candidate(**{name: _tuples(value) for name, value in one.items()})
                for one in found["candidates"]
            )
            return cls(**found)

        return from_json(
            text, FORMAT, make, "these are no acceptance statistics ({reason}): give what otlp "
            "design --statistics wrote",
        )  # fmt: skip

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read a JSON file.

        Raises
        ------
        InvalidInputError
            If it cannot be read, or holds something else.
        """
        return read_as(cls.from_json, path)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
