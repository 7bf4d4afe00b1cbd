"""Acceptance statistics of a pair of models: the efficiency of draftings on text of the target.

The statistics are gathered once and stored as JSON, with the names of the models and the sampling.
`design` needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

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
from otlp_lab.json_files import JsonFile

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
"""Functions from a candidate's parameters to its drafting, by family.

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
"""Verification algorithms of families other than `tournament`."""


@dataclass(frozen=True)
class Candidate:
    """A drafting and its predicted efficiency.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    parameters : tuple
        Arguments of the function in `FAMILIES`.
    nodes : float
        Maximum number of drafted tokens per round, including repeated tokens; for adaptive depth
        the mean number.
    depth : int
        Length of the longest path, which is the number of draft calls.
    efficiency, error : float
        Tokens per target call by text renewal, and its standard error over the texts.
    draft_temperature : float or None
        Temperature of a sampling draft; None: the temperature of both models.
    tokens, calls : tuple of float
        The `Renewal` behind `efficiency`, for paired comparisons of candidates by text.  Empty if
        unknown.

    Raises
    ------
    InvalidInputError
        If the family is unknown, its function rejects the parameters, or a number is out of range.

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
                f"parameters must be valid for the family {self.family!r}, got "
                f"{self.parameters!r:.60} ({error!s:.200})"
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
                f"tokens and calls of {what:.60} must have one entry per text, got "
                f"{len(self.tokens)} and {len(self.calls)}"
            )

    def over(self, other: Candidate) -> Estimate:
        """Estimate the ratio of both efficiencies, paired by texts; NaN ends if unknown."""
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
        """Verification algorithm of the prediction."""
        return find_verification(RULES.get(self.family, "tournament"))

    @property
    def drafting(self) -> Drafting:
        """The drafting."""
        return FAMILIES[self.family](*self.parameters)

    def __str__(self) -> str:
        """Return the function call of `otlp.decode` that makes the drafting."""
        return f"{FAMILIES[self.family].__name__}({', '.join(map(repr, self.parameters))})"


@dataclass(frozen=True)
class Statistics(JsonFile):
    """Predicted efficiencies of draftings for one pair of models and one sampling.

    Attributes
    ----------
    draft, target : str
        Names of the models.
    sampling : Sampling
        Sampling of both models and of the text.
    texts, tokens : int
        Number of texts, and total number of their tokens.
    candidates : tuple of Candidate
        Must not be empty.
    models : str
        Fingerprint of the models, or of the rows of a capture; empty if unknown.
    settings : dict of str to JSON value
        Options that the texts and the candidates depend on; empty if unknown.

    Raises
    ------
    InvalidInputError
        If `candidates` is empty, or a value is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, Statistics, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # the draft equals the target
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> statistics.texts, statistics.tokens
    (2, 16)
    >>> Statistics.from_json(statistics.to_json()) == statistics
    True
    """

    format = "otlp-acceptance-4"
    refusal = (
        "must be acceptance statistics ({reason}): give a file written by otlp lab design "
        "--statistics"
    )

    draft: str
    target: str
    sampling: Sampling
    texts: int
    tokens: int
    candidates: tuple[Candidate, ...]
    models: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_a(self.sampling, Sampling, "sampling")
        for name in ("draft", "target", "models"):
            is_a(getattr(self, name), str, name)
        is_a(self.settings, dict, "settings")
        for name in ("texts", "tokens"):
            whole_number(getattr(self, name), name)
        if not self.candidates:
            raise InvalidInputError(
                "candidates must not be empty: gather statistics from text decoded from the target"
            )
        for one in self.candidates:
            is_a(one, Candidate, "a candidate")

    def check_models(self, target: str, draft: str, sampling: Sampling) -> None:
        """Check that the statistics are of these models, by name, and this sampling.

        Raises
        ------
        InvalidInputError
            If not; the message names both pairs and both samplings.
        """
        is_a(target, str, "target")
        is_a(draft, str, "draft")
        is_a(sampling, Sampling, "sampling")
        if (target, draft, sampling) != (self.target, self.draft, self.sampling):
            raise InvalidInputError(
                f"the statistics are of target {self.target} with draft {self.draft} and "
                f"{self.sampling}, not of target {target} with draft {draft} and {sampling}: "
                "gather statistics for these models"
            )

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Self:
        found["candidates"] = tuple(
            Candidate(**{name: _tuples(value) for name, value in one.items()})
            for one in found["candidates"]
        )
        return super()._of(found)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
