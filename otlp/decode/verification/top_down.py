"""Top-down verification: solve a single-step OTLP at each node, follow its plan down the tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from otlp import Guarantee, Plan, Problem, SolveError, Solver
from otlp.checks import own_float_errors
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, hub_pairs, iid_paths
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification, follow
from otlp.distribution import FloatArray
from otlp.drafts import DraftScheme
from otlp.errors import Capability, InvalidInputError, UnsupportedProblemError
from otlp.solvers import make_solver

LARGEST_HUB_TREE = 8
"""Longest binary trees of pairs that are drafted: 2^L leaves."""


def draft_hub_pairs(paths: int, length: int) -> Drafting:
    """Draft SpecHub's pairs on a binary tree; `paths` is the size of a pair.

    Raises
    ------
    UnsupportedProblemError
        If other than pairs are asked for, or a tree that is too large.
    """
    if paths != 2 or length > LARGEST_HUB_TREE:
        raise UnsupportedProblemError(
            f"hub drafts pairs on a binary tree: K must be 2, not {paths}, and L at most "
            f"{LARGEST_HUB_TREE}, not {length}"
        )
    return hub_pairs(length)


@dataclass(frozen=True)
class TopDown(Verification):
    """At each node draw the plan's token; go on where it was drafted, stop where it was not.

    The framework of SpecTr (Sun et al. 2023, Algorithm 3), and with the respective rule SpecTr
    (``k-seq``), SpecInfer (``recursive-rejection``), NSS (``naive``) and SpecHub (``hub``).

    Parameters
    ----------
    solver : str or Solver
        The single-step solver or rule, by name or as an object.
    fallback : str, Solver or None
        Used at a node that `solver` does not take, or where it finds no plan, or none that holds
        the guarantee by its certificate; without one that is an error.  `Outcome.fallbacks` counts
        such nodes.
    drafts : callable
        From K and L to the drafting that the rule is made for.
    guarantee : Guarantee
        What the plan at every node must be.  With `APPROXIMATE` the rule is not lossless: the
        distribution of L tokens is off, in L1, by at most the sum over L levels of what plans are
        off; as published, global resolution stays within 15 L tau (its Theorem R.1).

    Raises
    ------
    InvalidInputError
        If an argument is of another type, or a solver is approximate and the guarantee is not.

    Notes
    -----
    One problem a level, of n drafts each: with i.i.d. paths n is the number of drafted paths
    that share the accepted prefix.  The plan is read through its exact conditional, O(V),
    rather than sampled, so that a round can be enumerated.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> rule = decode.TopDown("recursive-rejection")
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), rule)
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.5045
    """

    name: ClassVar[str] = "top-down"
    solver: str | Solver = "auto"
    fallback: str | Solver | None = None
    drafts: Callable[[int, int], Drafting] = field(default=iid_paths, repr=False)
    guarantee: Guarantee = Guarantee.LOSSLESS

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee) or self.guarantee is Guarantee.NONE:
            raise InvalidInputError(
                f"guarantee is {self.guarantee!r:.60}: give otlp.Guarantee.LOSSLESS, OPTIMAL, or "
                "APPROXIMATE for plans that change the target's distribution"
            )
        for value in (self.solver, self.fallback):
            if value is not None and not isinstance(value, (str, Solver)):
                raise InvalidInputError(f"solver is {value!r:.60}: give a name or a Solver")
            approximate = isinstance(value, Solver) and value.promise is Guarantee.APPROXIMATE
            if approximate and self.guarantee > Guarantee.APPROXIMATE:
                # No plan of it would be taken: a fallback would silently be the rule.
                raise InvalidInputError(
                    f"the plans of {value!r} change the target's distribution: take another "
                    "solver, or ask for such plans by guarantee=otlp.Guarantee.APPROXIMATE"
                )

    def drafting(self, paths: int, length: int) -> Drafting:
        """See `drafts`."""
        return self.drafts(paths, length)

    def supports(self, drafting: Drafting) -> Capability:
        """Ask the solver about a small problem of the same kind."""
        siblings = drafting.siblings
        if siblings is None or siblings.n < 2:
            return Capability(True)
        uniform = np.full(siblings.vocab_size, 1.0 / siblings.vocab_size)
        return self._solver.supports(Problem(uniform, siblings))

    @cached_property
    def _solver(self) -> Solver:
        return make_solver(self.solver)

    def plan(self, drafts: DraftScheme, target_distribution: FloatArray) -> Plan:
        """Prepare the solver for the problem at one node; see `otlp.Solver.prepare`.

        Raises
        ------
        SolveError
            If neither the solver nor the fallback finds a plan that holds the guarantee.
        UnsupportedProblemError
            If there is no fallback and the solver does not take the problem.
        """
        return self._plan(drafts, target_distribution)[0]

    def _plan(self, drafts: DraftScheme, target_distribution: FloatArray) -> tuple[Plan, bool]:
        """The plan at one node, and whether it is the fallback's."""
        problem, solver = Problem(target_distribution, drafts), self._solver
        if self.fallback is None:
            return solver.prepare(problem, self.guarantee), False
        if solver.supports(problem):
            try:
                # One plan for all tuples: the fallback must not stand in for some of them.
                return solver.prepare(problem, self.guarantee).finished(), False
            except SolveError:
                pass
        return make_solver(self.fallback).prepare(problem, self.guarantee), True

    @own_float_errors
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Go down the tree; see `Verification.verify`."""
        fallbacks = 0

        def next_token(node: int) -> FloatArray:
            nonlocal fallbacks
            plan, fell_back = self._plan(tree.schemes[node], targets[node])
            fallbacks += fell_back
            return plan.conditional(tree.drawn(node))

        return replace(follow(tree, targets, chooser, next_token), fallbacks=fallbacks)
