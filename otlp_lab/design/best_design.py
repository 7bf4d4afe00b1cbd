"""Which tree to draft: the candidate that gives most tokens a target call, or a second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from otlp.checks import is_a, number, whole_number
from otlp.errors import InvalidInputError
from otlp_lab.design.statistics import FAMILIES, Candidate, Statistics


@dataclass(frozen=True)
class CostCurve:
    """What the models' calls take.

    Parameters
    ----------
    target_seconds : sequence of float
        Of a target call on a tree of 0, 1, 2, ... drafted nodes, each greater than 0.
    draft_seconds : float
        Of a draft call: one for each level of the tree.

    Raises
    ------
    InvalidInputError
        If an entry is missing (None or NaN), not positive, or there is none but that of 0 nodes.

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
                f"target_seconds is {self.target_seconds!r:.60}: give the seconds of a target call "
                "for 0, 1, ... nodes"
            )
        for nodes, seconds in enumerate(entries):
            what = f"target_seconds[{nodes}], of a target call on {nodes} nodes,"
            if number(seconds, what, 0.0) == 0.0:
                raise InvalidInputError(f"{what} is 0: it must be greater")
        object.__setattr__(self, "target_seconds", tuple(map(float, entries)))
        object.__setattr__(self, "draft_seconds", number(self.draft_seconds, "draft_seconds", 0.0))

    @property
    def nodes(self) -> int:
        """The most nodes that it knows the cost of."""
        return len(self.target_seconds) - 1

    def tokens_per_second(self, one: Candidate) -> float:
        """Tokens a second, if a round is one target call, and a draft call for each level."""
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
    """Choose the drafting that gives most.

    Parameters
    ----------
    statistics : Statistics
    nodes : int, optional
        Budget N of drafted tokens a round; with a cost curve it may be left out.
    costs : CostCurve, optional
        Choose by tokens a second, rather than by tokens a target call.
    families : list, tuple or set of str
        Which of `FAMILIES` may be chosen.  All but ``"adaptive-depth"`` draft at most N tokens in
        every round; that does so on average.

    Returns
    -------
    Candidate
        What to draft, and what that is predicted to give; of equally good ones that with fewer
        nodes.

    Raises
    ------
    InvalidInputError
        If there is no budget, it is less than 1 or less than every candidate, or a family is
        unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, CostCurve, design, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
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
        raise InvalidInputError("there is no budget: give nodes, or costs")
    if costs is not None:
        is_a(costs, CostCurve, "costs")
    most = np.inf if nodes is None else whole_number(nodes, "the number of nodes N")
    most = min(most, np.inf if costs is None else costs.nodes)
    fitting = _fitting(statistics, _known(families), most)
    return max(fitting, key=lambda one: (worth(one, costs), -one.nodes))


def best_chain(
    statistics: Statistics, nodes: int, costs: CostCurve | None = None
) -> Candidate | None:
    """Choose the best single path of at most `nodes` tokens; None if there is none."""
    chains = [one for one in statistics.candidates if one.is_chain]
    fitting = [one for one in chains if one.nodes <= nodes]
    return max(fitting, key=lambda one: (worth(one, costs), -one.nodes), default=None)


def worth(one: Candidate, costs: CostCurve | None) -> float:
    """Tokens a target call, or with costs a second, to nine digits.

    Paths are a tree, too: the same rule in other arithmetic is not better.
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


def _known(families: Iterable[str]) -> Sequence[str]:
    wanted = [families] if isinstance(families, str) else families
    wanted = list(wanted) if isinstance(wanted, (list, tuple, set, dict)) else []
    odd = [name for name in wanted if not isinstance(name, str) or name not in FAMILIES]
    if odd or not wanted:
        raise InvalidInputError(f"families is {families!r:.60}: choose from {', '.join(FAMILIES)}")
    return wanted
