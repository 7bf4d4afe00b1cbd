"""Top-down verification: solve a single-step OTLP at each node and follow its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from otlp import Guarantee, Plan, Problem, SolveError, Solver
from otlp.capability import Capability
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, hub_pairs, iid_paths
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification, follow
from otlp.distribution import FloatArray
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.solvers import make_solver

LARGEST_HUB_TREE = 8
"""Maximum depth L of a binary tree of pairs (2^L leaves)."""


def draft_hub_pairs(paths: int, length: int) -> Drafting:
    """Draft SpecHub pairs on a binary tree; `paths` is the size of a pair.

    Raises
    ------
    UnsupportedProblemError
        If `paths` is not 2, or the tree is too large.
    """
    if paths != 2 or length > LARGEST_HUB_TREE:
        raise UnsupportedProblemError(
            f"hub drafts pairs on a binary tree: K must be 2, got {paths}, and L at most "
            f"{LARGEST_HUB_TREE}, got {length}"
        )
    return hub_pairs(length)


@dataclass(frozen=True)
class TopDown(Verification):
    """Draw the plan's token at each node; continue if it was drafted, otherwise stop.

    This is the framework of SpecTr (Sun et al. 2023, Algorithm 3).  With the respective rule it is
    SpecTr (``k-seq``), SpecInfer (``recursive-rejection``), NSS (``naive``) or SpecHub (``hub``).

    Parameters
    ----------
    solver : str or Solver
        Single-step solver or rule, by name or as an object.
    fallback : str, Solver or None
        Solver for nodes that `solver` does not support, or where it finds no plan whose certificate
        meets the guarantee.  With None such a node is an error.  `Outcome.fallbacks` counts these
        nodes.
    drafts : callable
        Function from K and L to the drafting of the rule.
    guarantee : Guarantee
        Required guarantee of the plan at every node.  With `APPROXIMATE` the rule is not lossless:
        the L1 error of the distribution of L tokens is at most the sum of the plans' errors over L
        levels; as published, global resolution stays within 15 L tau (its Theorem R.1).

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type, or a solver is approximate and the guarantee is not.

    Notes
    -----
    One problem per level, with n drafts; for i.i.d. paths n is the number of drafted paths that
    share the accepted prefix.  The rule uses the exact conditional of the plan, O(V), instead of
    sampling from the plan, so that a round can be enumerated.

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

    name = "top-down"
    solver: str | Solver = "auto"
    fallback: str | Solver | None = None
    drafts: Callable[[int, int], Drafting] = field(default=iid_paths, repr=False)
    guarantee: Guarantee = Guarantee.LOSSLESS

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee) or self.guarantee is Guarantee.NONE:
            raise InvalidInputError(
                "guarantee must be otlp.Guarantee.LOSSLESS, OPTIMAL, or APPROXIMATE for plans that "
                f"change the target's distribution, got {self.guarantee!r:.60}"
            )
        for value in (self.solver, self.fallback):
            if value is not None and not isinstance(value, (str, Solver)):
                raise InvalidInputError(f"solver must be a name or a Solver, got {value!r:.60}")
            approximate = isinstance(value, Solver) and value.promise is Guarantee.APPROXIMATE
            if approximate and self.guarantee > Guarantee.APPROXIMATE:
                # Every plan would be rejected, so the fallback would silently replace the rule.
                raise InvalidInputError(
                    f"the plans of {value!r} change the target's distribution: use another solver, "
                    "or allow such plans with guarantee=otlp.Guarantee.APPROXIMATE"
                )

    def drafting(self, paths: int, length: int) -> Drafting:
        """Return the drafting of the rule; see `drafts`."""
        return self.drafts(paths, length)

    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the solver supports a small problem with siblings of the same kind."""
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
            If neither the solver nor the fallback finds a plan that meets the guarantee.
        UnsupportedProblemError
            If there is no fallback and the solver does not support the problem.
        """
        return self._plan(drafts, target_distribution)[0]

    def _plan(self, drafts: DraftScheme, target_distribution: FloatArray) -> tuple[Plan, bool]:
        """Return the plan at one node, and whether the fallback computed the plan."""
        problem, solver = Problem(target_distribution, drafts), self._solver
        if self.fallback is None:
            return solver.prepare(problem, self.guarantee), False
        if solver.supports(problem):
            try:
                # All tuples must use one plan: the fallback must not replace only some of them.
                return solver.prepare(problem, self.guarantee).finished(), False
            except SolveError:
                pass
        return make_solver(self.fallback).prepare(problem, self.guarantee), True

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Verify the tree from the root; see `Verification.verify`."""
        fallbacks = 0

        def next_token(node: int) -> FloatArray:
            nonlocal fallbacks
            plan, used_fallback = self._plan(tree.schemes[node], targets[node])
            fallbacks += used_fallback
            return plan.conditional(tree.drawn(node))

        return replace(follow(tree, targets, chooser, next_token), fallbacks=fallbacks)
