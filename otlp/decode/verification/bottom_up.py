"""Bottom-up verification: leaves first, by a single-step plan for what each node must give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from otlp import Guarantee
from otlp.checks import is_a
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.post_order import PostOrder
from otlp.decode.verification.top_down import TopDown
from otlp.distribution import FloatArray
from otlp.errors import Capability, InvalidInputError


@dataclass(frozen=True)
class BottomUp(PostOrder):
    """Lift a single-step rule to trees so that a subtree that is rejected gives back.

    At a node of weight w the target mass of the next token y is w p(y), and 1 - w is that of no
    token: a problem over one token more, which is never drafted.  Its plan, given the drafted
    children, says with which probability each of them is to be accepted, itself or below; each is
    tried with its share of what those before it left, and that may be more than w.  After the last
    the node is accepted with the correction's share of what is left, and else its parent goes on.

    On one path that is block verification.  With recursive rejection as the step it is traversal.

    Source: this project.  UniVer (Weng, Hu and Yairi 2026, arXiv:2605.04543) says that acceptance
    probabilities of prefixes scale local plans, and decides in post-order; Layer Verification (Cha,
    Cho and Yun 2026) that it lifts any single-step rule.  Only their abstracts were at hand: this
    need be neither.

    Parameters
    ----------
    step : TopDown
        Its solver and fallback make the plan at a node, which must be lossless.

    Raises
    ------
    InvalidInputError
        If the step is of another type, or takes approximate plans.

    Notes
    -----
    One problem a node that is reached.  For every kind of draws that the solver takes, those
    without replacement among them.

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

    name: ClassVar[str] = "bottom-up"
    step: TopDown = field(default_factory=TopDown)

    def __post_init__(self) -> None:
        is_a(self.step, TopDown, "step")
        if self.step.guarantee < Guarantee.LOSSLESS:
            raise InvalidInputError(
                f"the plans of {self.step!r} are {self.step.guarantee}: nothing bounds what that "
                "adds up to leaves first; use the step itself, or a lossless one"
            )

    def drafting(self, paths: int, length: int) -> Drafting:
        """What the step is made for."""
        return self.step.drafting(paths, length)

    def supports(self, drafting: Drafting) -> Capability:
        """Take what the step takes."""
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
