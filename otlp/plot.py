"""The pictures that everybody draws: acceptance over n, scores on their cells, a plan as flow.

Each draws on matplotlib axes, those that are given or new ones, and returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from otlp.drafts import DraftTuples
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.parallel.solve_many import solve_many
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.score_plan import ScorePlan
from otlp.solvers.table import SolverName
from otlp.studies.canvas import axes_or_new
from otlp.studies.style import BLACK, COLOURS, GREY, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["acceptance_over_n", "flow", "scores"]

RULES: tuple[SolverName, ...] = ("auto", "k-seq", "recursive-rejection", "naive")

MOST_SETS = 40
"""Sets of drafted tokens whose names can still be read beside each other."""

NAMED = 0.02
"""Share of the picture from which on a token's number fits into its piece of a cell."""


def acceptance_over_n(
    problems: Callable[[int], Iterable[Problem]],
    counts: Sequence[int] = (1, 2, 3, 4, 6, 8),
    rules: Sequence[SolverName] = RULES,
    *,
    axes: Axes | None = None,
) -> Axes:
    """Draw the mean acceptance of some rules over the number of drafts.

    Parameters
    ----------
    problems : callable
        From n to the problems with n drafts, such as
        ``lambda n: otlp.CaptureProblems(capture, n=n)``.
    counts : sequence of int
        The numbers n.
    rules : sequence of str
        Names of solvers; `auto` is the optimum, and called so.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    OTLPError
        What a problem raises, if a rule does not take it.

    Examples
    --------
    >>> import otlp
    >>> p, q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
    >>> axes = otlp.plot.acceptance_over_n(lambda n: [otlp.Problem(p, otlp.IID(q, n))], (1, 2))
    >>> [label.get_text() for label in axes.get_legend().get_texts()]
    ['optimum', 'k-seq', 'recursive-rejection', 'naive']
    """
    drawn: Axes = axes_or_new(axes)
    for rule in rules:
        means = [_mean_acceptance(problems(n), rule) for n in counts]
        style = look("martingale" if rule == "auto" else rule, rules)
        drawn.plot(counts, means, label="optimum" if rule == "auto" else rule, **style)
    drawn.set(xlabel="n, number of drafts", ylabel="mean acceptance", xticks=counts, ylim=(0, 1.02))
    drawn.legend()
    return drawn


def scores(plan: Plan | Solution | None, *, axes: Axes | None = None) -> Axes:
    """Draw the scores of a plan for i.i.d. drafts: each cell, and the tokens that score on it.

    A cell is as wide as its tokens are likely to be drafted; without swaps it would hold its own
    tokens alone.  Tokens of one group are drawn as one.

    Parameters
    ----------
    plan : Plan or Solution
        Of the solver `martingale`.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInputError
        If the plan has no scores.
    EngineNotFoundError
        If matplotlib is missing.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> axes = otlp.plot.scores(otlp.solve(problem))
    >>> axes.get_xlabel()
    'score: the largest of n is selected'
    """
    plan = _plan(plan)
    if not isinstance(plan, ScorePlan):
        raise InvalidInputError(
            f"a {type(plan).__name__} has no scores: draw otlp.solve(problem, 'martingale'), of "
            "i.i.d. drafts, or this plan with otlp.plot.flow"
        )
    names: dict[int, list[int]] = {}
    group, _ = plan.token_laws()
    for token in np.flatnonzero(plan.problem.drafts.support).tolist():
        names.setdefault(int(group[token]), []).append(token)
    owner, cell, mass = plan.score_masses()
    order = np.lexsort((owner, cell))
    owner, cell, mass = owner[order], cell[order], mass[order]
    width = np.bincount(cell, mass, minlength=len(plan.laws.groups))
    ends = np.cumsum(mass)
    starts = np.cumsum(width) - width
    height = mass / width[cell]
    bottom = (ends - mass - starts[cell]) / width[cell]
    colours = [COLOURS[group % len(COLOURS)] for group in owner.tolist()]
    drawn: Axes = axes_or_new(axes)
    drawn.bar(starts[cell], height, width[cell], bottom, color=colours, align="edge")
    for at in np.flatnonzero((width[cell] > NAMED) & (height > 2 * NAMED)):
        middle = (starts[cell[at]] + width[cell[at]] / 2, bottom[at] + height[at] / 2)
        tokens = names[int(owner[at])]
        name = ", ".join(map(str, tokens[:3])) + (", ..." if len(tokens) > 3 else "")
        drawn.text(*middle, name, color="white", ha="center", va="center")
    drawn.set(xlabel="score: the largest of n is selected", ylabel="share of the cell")
    drawn.set(xlim=(0, 1), ylim=(0, 1))
    drawn.grid(False)
    return drawn


def flow(plan: Plan | Solution | None, *, axes: Axes | None = None) -> Axes:
    """Draw a plan as a flow S from tokens to the sets that are drafted: what is accepted of which.

    A line is as wide as the probability that its token is the output and its set was drafted;
    beside a token stands its flow over p, beside a set its flow over the set's probability.

    Parameters
    ----------
    plan : Plan or Solution
        Of any solver, for a small problem.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    SizeLimitError
        If more than `MOST_SETS` sets of tokens can be drafted.
    EngineNotFoundError
        If matplotlib is missing.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> axes = otlp.plot.flow(otlp.solve(problem))
    >>> [label.get_text() for label in axes.texts if "{0}" in label.get_text()]
    ['{0}  0.1 / 0.25']
    """
    plan = _plan(plan)
    problem = plan.problem
    found, _ = problem.drafts.set_count()
    if found > MOST_SETS:
        raise SizeLimitError(
            f"{found:,.0f} sets of tokens can be drafted, and {MOST_SETS} can be drawn: cut the "
            "draft to its likeliest tokens, or draw a martingale plan by otlp.plot.scores"
        )
    sets = _accepted(*plan.table())
    drawn: Axes = axes_or_new(axes)
    drawn.set_axis_off()
    tokens = sorted({token for members in sets for token in members})
    heights = dict(zip(tokens, np.linspace(len(sets) - 1, 0, len(tokens) + 2)[1:-1], strict=True))
    sent = dict.fromkeys(tokens, 0.0)
    for at, members in enumerate(sorted(sets)):
        mass, accepted = sets[members]
        y = len(sets) - 1 - at
        for token, share in zip(members, accepted, strict=True):
            width = {"lw": 0.6 + 12 * share, "alpha": 0.8}
            colour = COLOURS[tokens.index(token) % len(COLOURS)] if share > 1e-9 else GREY
            drawn.plot([0, 2], [heights[token], y], color=colour, **width)
            sent[token] += float(share)
        name = "{" + ", ".join(map(str, members)) + "}"
        drawn.text(2.06, y, f"{name}  {sum(accepted):.2g} / {mass:.2g}", va="center")
    for token, y in heights.items():
        colour = COLOURS[tokens.index(token) % len(COLOURS)]
        drawn.plot(0, y, "o", color=colour, markersize=13)
        drawn.text(0, y, str(token), color="white", ha="center", va="center", weight="bold")
        said = f"{sent[token]:.2g} / {problem.target[token]:.2g}"
        drawn.text(-0.1, y, said, color=BLACK, ha="right", va="center")
    drawn.set_title("token: accepted / p;  drafted set: accepted / its probability")
    drawn.set_xlim(-0.7, 3.0)
    return drawn


def _mean_acceptance(problems: Iterable[Problem], rule: SolverName) -> float:
    """Mean over the problems; what one of them raises is raised."""
    found = []
    for row in solve_many(problems, rule, plans=False):
        if row.error is not None:
            raise row.error
        found.append(row.acceptance)
    return float(np.mean(found))


def _plan(given: Any) -> Plan:
    """The plan of a solution, or the plan itself."""
    plan = given.plan if isinstance(given, Solution) else given
    if not isinstance(plan, Plan):
        raise InvalidInputError(
            f"plan is a {type(plan).__name__}: pass a solution that has one, or its plan"
        )
    return plan


def _accepted(
    tuples: DraftTuples, conditionals: np.ndarray[Any, Any]
) -> dict[tuple[int, ...], tuple[float, np.ndarray[Any, Any]]]:
    """Of each set of drafted tokens its probability, and what is accepted of each member."""
    sets: dict[tuple[int, ...], tuple[float, np.ndarray[Any, Any]]] = {}
    for drafted, mass, given in zip(tuples.tokens, tuples.mass, conditionals, strict=True):
        members = tuple(np.unique(drafted).tolist())
        before, accepted = sets.get(members, (0.0, np.zeros(len(members))))
        sets[members] = before + float(mass), accepted + mass * given[list(members)]
    return sets
