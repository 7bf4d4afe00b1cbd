"""Bottom-up verification: leaves first, with a single-step plan for the mass of each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from otlp import Guarantee
from otlp.capability import Capability
from otlp.checks import is_a
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.post_order import PostOrder
from otlp.decode.verification.top_down import TopDown
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class BottomUp(PostOrder):
    """Extend a single-step rule to trees; rejected subtrees return their mass to the parent.

    At a node of weight w the next token y has target mass w p(y), and an additional token, which is
    never drafted, has mass 1 - w.  The plan of this problem, given the drafted children, defines
    the probability that each child is accepted, itself or below.  Each child is tried with its
    share of the mass left by the earlier children; this share may exceed w.  After the last child
    the node is accepted with the correction's share of the remaining mass; otherwise its parent
    continues.

    On one path this is block verification.  With recursive rejection as the step it is traversal.

    Source: this project.  According to its abstract, UniVer (Weng, Hu and Yairi 2026,
    arXiv:2605.04543) scales local plans by acceptance probabilities of prefixes and decides in
    post-order; according to its abstract, Layer Verification (Cha, Cho and Yun 2026) extends any
    single-step rule.  Only the abstracts were available: this rule may differ from both.

    Parameters
    ----------
    step : TopDown
        Single-step rule; its solver and fallback compute the plan at a node, which must be
        lossless.

    Raises
    ------
    InvalidInputError
        If the step has the wrong type, or accepts approximate plans.

    Notes
    -----
    One problem per visited node.  Supports every draft scheme that the solver supports, including
    draws without replacement.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.without_replacement([2, 1]), decode.BottomUp())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.6749
    """

    name = "bottom-up"
    step: TopDown = field(default_factory=TopDown)

    def __post_init__(self) -> None:
        is_a(self.step, TopDown, "step")
        if self.step.guarantee < Guarantee.LOSSLESS:
            raise InvalidInputError(
                f"step must be lossless, got {self.step!r} with {self.step.guarantee} plans: their "
                "total error has no bound bottom-up; use the step itself, or a lossless step"
            )

    def drafting(self, paths: int, length: int) -> Drafting:
        """Return the drafting of the step."""
        return self.step.drafting(paths, length)

    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the step supports the drafting."""
        return self.step.supports(drafting)

    def attempts(
        self, tree: DraftTree, node: int, p: FloatArray, weight: float
    ) -> Iterator[tuple[int, float, FloatArray]]:
        """Follow the plan for w p; see `PostOrder.attempts`."""
        if node not in tree.draws:
            yield node, weight, p
            return
        drafts = tree.schemes[node].restrict(np.arange(p.size), p.size + 1)
        plan = self.step.plan(drafts, np.append(weight * p, 1.0 - weight))
        law = plan.conditional(tree.drawn(node)).copy()
        left = float(law.sum())
        for child in dict.fromkeys(tree.draws[node].tolist()):
            share = float(law[tree.tokens[child]])
            if share > 0.0:
                yield child, min(share / left, 1.0), p
                left -= share
            law[tree.tokens[child]] = 0.0
        correction = law[:-1]
        total = float(correction.sum())
        if total > 0.0:
            yield node, total / (total + float(law[-1])), correction / total
