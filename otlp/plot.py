"""Plots with matplotlib: acceptance over n, scores on their cells, a plan as a flow.

Each function draws on the given axes, or on a new figure, and returns the axes.
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
"""Maximum number of token sets in a flow plot; more labels would not be readable."""

LABEL_SIZE = 0.02
"""Minimum size of a piece of a cell, as a fraction of the plot, for a token label."""


def acceptance_over_n(
    problems: Callable[[int], Iterable[Problem]],
    counts: Sequence[int] = (1, 2, 3, 4, 6, 8),
    rules: Sequence[SolverName] = RULES,
    *,
    axes: Axes | None = None,
) -> Axes:
    """Plot the mean acceptance of rules over the number of drafts.

    Parameters
    ----------
    problems : callable
        Function that returns the problems with n drafts, such as
        ``lambda n: otlp.CaptureProblems(capture, n=n)``.
    counts : sequence of int
        Numbers of drafts n.
    rules : sequence of str
        Names of solvers; `auto` is labelled "optimum".
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    EngineNotFoundError
        If matplotlib is missing.
    OTLPError
        If a rule does not support a problem; the error of that problem.

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
    """Plot the scores of a plan for i.i.d. drafts: the cells, and the tokens that score on them.

    The width of a cell is the draft probability of its tokens; without swaps, a cell would contain
    only its own tokens.  Tokens of one group are drawn as one bar.

    Parameters
    ----------
    plan : Plan or Solution
        Plan of the solver `martingale`.
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

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
            f"plan must have scores, got {type(plan).__name__}; plot "
            "otlp.solve(problem, 'martingale') for i.i.d. drafts, or this plan with otlp.plot.flow"
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
    for at in np.flatnonzero((width[cell] > LABEL_SIZE) & (height > 2 * LABEL_SIZE)):
        middle = (starts[cell[at]] + width[cell[at]] / 2, bottom[at] + height[at] / 2)
        tokens = names[int(owner[at])]
        name = ", ".join(map(str, tokens[:3])) + (", ..." if len(tokens) > 3 else "")
        drawn.text(*middle, name, color="white", ha="center", va="center")
    drawn.set(xlabel="score: the largest of n is selected", ylabel="share of the cell")
    drawn.set(xlim=(0, 1), ylim=(0, 1))
    drawn.grid(False)
    return drawn


def flow(plan: Plan | Solution | None, *, axes: Axes | None = None) -> Axes:
    """Plot a plan as a flow S from tokens to drafted sets.

    The width of a line is the probability that its set is drafted and its token is accepted.  The
    labels are the flow of a token and its p, and the flow of a set and its probability.

    Parameters
    ----------
    plan : Plan or Solution
        Plan of any solver, for a small problem.
    axes : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

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
    set_count, _ = problem.drafts.set_count()
    if set_count > MOST_SETS:
        raise SizeLimitError(
            f"the problem must have at most {MOST_SETS} sets of tokens that can be drafted, got "
            f"{set_count:,.0f}; cut the draft to its most likely tokens, or plot a martingale plan "
            "with otlp.plot.scores"
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
        label = f"{sent[token]:.2g} / {problem.target[token]:.2g}"
        drawn.text(-0.1, y, label, color=BLACK, ha="right", va="center")
    drawn.set_title("token: accepted / p;  drafted set: accepted / its probability")
    drawn.set_xlim(-0.7, 3.0)
    return drawn


def _mean_acceptance(problems: Iterable[Problem], rule: SolverName) -> float:
    """Return the mean over the problems; raise the error of the first problem that fails."""
    acceptances = []
    for row in solve_many(problems, rule, plans=False):
        if row.error is not None:
            raise row.error
        acceptances.append(row.acceptance)
    return float(np.mean(acceptances))


def _plan(given: Any) -> Plan:
    """Return the plan of a solution, or the plan itself."""
    plan = given.plan if isinstance(given, Solution) else given
    if not isinstance(plan, Plan):
        raise InvalidInputError(
            f"plan must be a Plan or a Solution with a plan, got {type(plan).__name__}"
        )
    return plan


def _accepted(
    tuples: DraftTuples, conditionals: np.ndarray[Any, Any]
) -> dict[tuple[int, ...], tuple[float, np.ndarray[Any, Any]]]:
    """Return by set of drafted tokens its probability and the accepted mass of each member."""
    sets: dict[tuple[int, ...], tuple[float, np.ndarray[Any, Any]]] = {}
    for drafted, mass, given in zip(tuples.tokens, tuples.mass, conditionals, strict=True):
        members = tuple(np.unique(drafted).tolist())
        before, accepted = sets.get(members, (0.0, np.zeros(len(members))))
        sets[members] = before + float(mass), accepted + mass * given[list(members)]
    return sets
