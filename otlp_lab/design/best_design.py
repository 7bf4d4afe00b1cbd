"""Choice of the candidate with the most tokens per target call, or per second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from otlp.checks import is_a, number, whole_number
from otlp.errors import InvalidInputError
from otlp_lab.design.statistics import FAMILIES, Candidate, Statistics


@dataclass(frozen=True)
class CostCurve:
    """Seconds of model calls.

    Parameters
    ----------
    target_seconds : sequence of float
        Seconds of a target call on a tree of 0, 1, 2, ... drafted nodes, each greater than 0.
    draft_seconds : float
        Seconds of a draft call; there is one draft call per level of the tree.

    Raises
    ------
    InvalidInputError
        If an entry is missing (None or NaN) or not positive, or there are fewer than two entries.

    Examples
    --------
    >>> from otlp_lab.design import CostCurve
    >>> CostCurve([1.0, 1.1, 1.2], draft_seconds=0.2).nodes
    2
    """

    target_seconds: tuple[float, ...]
    draft_seconds: float = 0.0

    def __post_init__(self) -> None:
        try:
            entries = tuple(self.target_seconds)
        except TypeError:
            entries = ()
        if len(entries) < 2:
            raise InvalidInputError(
                "target_seconds must be the seconds of a target call for 0, 1, ... nodes, got "
                f"{self.target_seconds!r:.60}"
            )
        for nodes, seconds in enumerate(entries):
            name = f"target_seconds[{nodes}]"
            if number(seconds, name, 0.0) == 0.0:
                raise InvalidInputError(f"{name} must be greater than 0, got 0")
        object.__setattr__(self, "target_seconds", tuple(map(float, entries)))
        object.__setattr__(self, "draft_seconds", number(self.draft_seconds, "draft_seconds", 0.0))

    @property
    def nodes(self) -> int:
        """Largest number of nodes with a known cost."""
        return len(self.target_seconds) - 1

    def tokens_per_second(self, one: Candidate) -> float:
        """Return tokens per second if a round has a target call and a draft call per level."""
        at = np.arange(len(self.target_seconds))
        seconds = float(np.interp(one.nodes, at, self.target_seconds))
        return one.efficiency / (seconds + one.depth * self.draft_seconds)


def design(
    statistics: Statistics,
    nodes: int | None = None,
    *,
    costs: CostCurve | None = None,
    families: Iterable[str] = tuple(FAMILIES),
) -> Candidate:
    """Choose the best drafting for a budget of nodes or a cost curve.

    Parameters
    ----------
    statistics : Statistics
    nodes : int, optional
        Budget N of drafted tokens per round; may be omitted with a cost curve.
    costs : CostCurve, optional
        If given, maximise tokens per second instead of tokens per target call.
    families : list, tuple or set of str
        Allowed families of `FAMILIES`.  All families draft at most N tokens in every round, except
        ``"adaptive-depth"``, which drafts at most N on average.

    Returns
    -------
    Candidate
        The drafting and its predicted efficiency.  Ties are broken by fewer nodes.

    Raises
    ------
    InvalidInputError
        If there is neither a budget nor a cost curve, the budget is less than 1 or than every
        candidate, or a family is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, CostCurve, design, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # the draft equals the target
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> found = design(statistics, nodes=2)
    >>> str(found), found.verification.name, found.efficiency
    ('iid_paths(1, 2)', 'two-slice', 3.0)
    >>> costs = CostCurve([1.0, 1.1, 1.2], draft_seconds=0.2)
    >>> round(costs.tokens_per_second(design(statistics, costs=costs)), 9)
    1.875
    """
    is_a(statistics, Statistics, "statistics")
    if nodes is None and costs is None:
        raise InvalidInputError("nodes and costs must not both be None: give a budget or costs")
    if costs is not None:
        is_a(costs, CostCurve, "costs")
    most = np.inf if nodes is None else whole_number(nodes, "the number of nodes N")
    most = min(most, np.inf if costs is None else costs.nodes)
    fitting = _fitting(statistics, _checked_families(families), most)
    return max(fitting, key=lambda one: (worth(one, costs), -one.nodes))


def best_chain(
    statistics: Statistics, nodes: int, costs: CostCurve | None = None
) -> Candidate | None:
    """Choose the best single path of at most `nodes` tokens; None if there is no such path."""
    fitting = (one for one in statistics.candidates if one.is_chain and one.nodes <= nodes)
    return max(fitting, key=lambda one: (worth(one, costs), -one.nodes), default=None)


def worth(one: Candidate, costs: CostCurve | None) -> float:
    """Return tokens per target call, or per second with `costs`, rounded to nine digits.

    Rounding makes paths and the equal tree a tie despite different rounding errors.
    """
    rate = one.efficiency if costs is None else costs.tokens_per_second(one)
    return float(f"{rate:.9g}")


def _fitting(statistics: Statistics, families: Sequence[str], most: float) -> list[Candidate]:
    every = [one for one in statistics.candidates if one.family in families]
    fitting = [one for one in every if one.nodes <= most]
    if not fitting:
        least = min((one.nodes for one in every), default=None)
        raise InvalidInputError(
            f"no candidate of {', '.join(families)} has at most {most:g} nodes"
            + ("" if least is None else f": the smallest has {least:g}")
            + "; raise the budget, or gather statistics for it"
        )
    return fitting


def _checked_families(families: Iterable[str]) -> Sequence[str]:
    names = [families] if isinstance(families, str) else families
    names = list(names) if isinstance(names, (list, tuple, set, dict)) else []
    known = ", ".join(FAMILIES)
    if not names or any(not isinstance(name, str) or name not in FAMILIES for name in names):
        raise InvalidInputError(f"families must be some of {known}; got {families!r:.60}")
    return names
