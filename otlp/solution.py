"""Results of solvers: `Status`, `Guarantee` and `Solution`, a plan with its certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from otlp.distribution import Mask
from otlp.errors import OTLPError
from otlp.plan import Plan
from otlp.showing.html import html_bar, html_table
from otlp.timing import Timings


class Status(Enum):
    """Why a solver stopped; the value is an explanation with advice.

    Examples
    --------
    >>> import otlp
    >>> solution = otlp.solve(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    >>> solution.status is otlp.Status.SOLVED
    True
    """

    SOLVED = "Solved."
    TIME_LIMIT = (
        "The time limit was reached: raise time_limit, cut the draft with top_k, or use a faster "
        "solver (martingale for i.i.d. drafts)."
    )
    ITERATION_LIMIT = (
        "The iteration limit was reached before convergence: raise the limit or loosen the "
        "tolerance."
    )
    TRUNCATION_LIMIT = (
        "The truncation set needed for this tau exceeds the limit: raise the limit, raise tau, "
        "or name a fallback solver."
    )
    NUMERICAL_ERROR = (
        "The engine failed or returned numbers that are not finite: see the engine's message, and "
        "try another engine."
    )
    CERTIFICATE_FAILED = (
        "The verifier recomputed the plan and could not confirm the solver's claim: do not rely on "
        "this claim.  If the solver is part of otlp, please report this."
    )


class Guarantee(IntEnum):
    """What the verifier proved about the plan; a larger member is a stronger guarantee.

    The tolerances are `LOSSLESS_TOLERANCE` and `GAP_TOLERANCE` of `otlp.certificate`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> otlp.solve(problem, "naive").guarantee >= otlp.Guarantee.LOSSLESS
    True
    >>> otlp.solve(problem, "naive").guarantee >= otlp.Guarantee.OPTIMAL
    False
    """

    NONE = 0
    """There is no plan."""
    APPROXIMATE = 1
    """The output distribution differs from the target by `Solution.marginal_error` > 0 in L1."""
    LOSSLESS = 2
    """The output follows the target; the acceptance may not be optimal."""
    OPTIMAL = 3
    """Lossless, and the acceptance reaches the dual bound within tolerance."""

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan and its certificate, as recomputed by the verifier.

    Attributes
    ----------
    solver : str
        Name of the solver.
    status : Status
        Why the solver stopped.
    guarantee : Guarantee
        What the verifier proved about the plan.
    plan : Plan or None
        The verification rule; None if the solver found none or `solve_many` did not keep it.
    acceptance : float
        Probability that the output is one of the drafted tokens; NaN without a plan.
    acceptance_interval : tuple of float, or None
        Interval that contains the acceptance with probability 1 - 1e-6 if the acceptance is
        estimated; the acceptance twice if it is exact; None without a plan.
    upper_bound : float
        Dual bound on the acceptance of any plan; `gap` is its difference from `acceptance`.
    subset : ndarray of bool, shape (V,), or None
        The subset H behind `upper_bound`, the proof of optimality.
    marginal_error : float
        L1 distance between the plan's output distribution and the target, or a bound on it.
    marginal_method : str
        How `marginal_error` was obtained, as text.
    timings : Timings
        Seconds by part: ``timings.plan`` for the solver, ``timings.total`` with the certificate.
    message : str
        Message of the solver: limits reached, by how much, an engine's error message.
    details : mapping
        Additional numbers such as iterations and sizes.  If rows were solved together, ``block``
        is the number of rows, and `timings` are their mean.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem)
    >>> round(solution.acceptance, 6), solution.gap < 1e-12, solution.subset.tolist()
    (0.85, True, [True, False, False])
    >>> solution.plan.conditional([0, 0]).round(3).tolist()
    [0.4, 0.6, 0.0]
    """

    solver: str
    status: Status
    guarantee: Guarantee
    plan: Plan | None
    acceptance: float
    upper_bound: float
    subset: Mask | None
    marginal_error: float
    marginal_method: str
    timings: Timings
    acceptance_interval: tuple[float, float] | None = None
    message: str = ""
    details: Mapping[str, object] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Pack the subset into bits: without a plan, it is most of the size of a pickle."""
        state = dict(vars(self))
        if self.subset is not None:
            state["subset"] = (self.subset.size, np.packbits(self.subset))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state from `__getstate__`."""
        if state["subset"] is not None:
            size, packed = state["subset"]
            state = state | {"subset": np.unpackbits(packed, count=size).view(np.bool_)}
        vars(self).update(state)

    @property
    def gap(self) -> float:
        """Optimality gap: upper bound minus acceptance."""
        return self.upper_bound - self.acceptance

    def __repr__(self) -> str:
        """Return the certificate in one line."""
        return f"<Solution by {self}>"

    def _repr_html_(self) -> str:
        entries = {
            "guarantee": f"{self.guarantee} ({self.status.name})",
            "acceptance": f"{self.acceptance:.9f}",
            "upper bound": f"{self.upper_bound:.9f} (gap {self.gap:.1e})",
            "marginal error": f"{self.marginal_error:.1e} ({self.marginal_method})",
            "time": f"{_times(self.timings)}; loading {self.timings.load:.2g} s",
        }
        if self.message:
            entries["message"] = self.message
        title = f"Solution by {self.solver}"
        return html_table(title, entries) + html_bar(self.acceptance, self.upper_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON-compatible data, as `otlp solve --json` writes it.

        Returns
        -------
        dict
            The attributes except the plan, and the gap: enumerations as their names, the subset as
            a list of tokens, the timings as ``"seconds"`` with their sums, and, if there is no
            interval, the acceptance twice.

        Examples
        --------
        >>> import otlp
        >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
        >>> written = otlp.solve(problem).to_dict()
        >>> written["guarantee"], written["subset"]
        ('OPTIMAL', [0])
        """
        subset, interval = self.subset, self.acceptance_interval
        return {
            "solver": self.solver,
            "status": self.status.name,
            "guarantee": self.guarantee.name,
            "acceptance": self.acceptance,
            "acceptance_interval": list(interval or (self.acceptance, self.acceptance)),
            "upper_bound": self.upper_bound,
            "gap": self.gap,
            "marginal_error": self.marginal_error,
            "marginal_method": self.marginal_method,
            "subset": None if subset is None else np.flatnonzero(subset).tolist(),
            "seconds": self.timings.to_dict(),
            "message": self.message,
            "details": dict(self.details),
        }

    def __str__(self) -> str:
        """Return the certificate in one line."""
        return (
            f"{self.solver}: {self.guarantee.name}, acceptance {self.acceptance:.9f}, "
            f"gap {self.gap:.1e}, marginal error {self.marginal_error:.1e} "
            f"({self.marginal_method}), {_times(self.timings)}, {self.status.name}"
            + (f", loading {1e3 * self.timings.load:.0f} ms" if self.timings.load > 0.001 else "")
        )


def _times(timings: Timings) -> str:
    return f"{1e3 * timings.plan:.3g} ms, {1e3 * timings.total:.3g} ms with certificate"


class SolveError(OTLPError, RuntimeError):
    """A solver stopped without a plan that solves the problem.

    Attributes
    ----------
    solution : Solution
        Solution of the solver; `solution.status` is the reason why it stopped.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> try:
    ...     otlp.solve(problem, "linear-program", time_limit=1e-9)
    ... except otlp.SolveError as error:
    ...     print(error.solution.status.name)
    TIME_LIMIT
    """

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution)  # Copies and pickles call the class with the arguments.
        self.solution = solution

    def __str__(self) -> str:
        """Return the message."""
        solution = self.solution
        return f"{solution.solver}: {solution.status.value} {solution.message}".rstrip()
