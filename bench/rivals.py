"""Rules of papers that are another rule, or lose the target's law: rebuilt here to be judged.

They are no part of otlp: no command takes their names, and text that they decode need not be the
target's.  `referee.py` has them in its table, as it has any file's rules;
`tests/otlp_lab/test_referee.py` their smallest counterexamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from otlp.decode import Chooser, DraftTree, Outcome
from otlp.decode.verification.verification import OfOnePath, OfPaths
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class HSD(OfOnePath):
    """Hierarchical speculative decoding with capped branches, as the paper states it.

    Source: arXiv:2601.05724, Definitions 4 to 6, Eqs. 16 to 20, Algorithm 2.  A prefix X has the
    ratio r(X) of its masses, and the capped ratio r*(X) is r(X) over the largest ratio above 1 of
    the shorter prefixes.  The whole path is accepted with min(r*, 1); a shorter prefix with the
    quotient of what its continuations lack, (r* - 1)^+ q, and of what they have too much, (1 -
    r*)^+ q; else the one above is tried.  That is block verification, in other letters.
    """

    name: ClassVar[str] = "hsd"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Scan backwards, resample once; see `Verification.verify`."""
        path = tree.ancestry(int(tree.leaves[0])) if tree.leaves.size else [0]
        ratios = [1.0]
        for node, child in pairwise(path):
            token = tree.tokens[child]
            step = float(targets[node, token]) / float(tree.distributions[node][token])
            ratios.append(ratios[-1] * step)
        if chooser.accept(min(self.whole(ratios), 1.0)):
            return Outcome(path[-1], targets[path[-1]])
        for at in range(len(path) - 2, -1, -1):
            # the continuations' r* q, in units of the prefix's own q
            wanted = targets[path[at]] * (ratios[at] / max(ratios[: at + 1]))
            surplus = wanted - tree.distributions[path[at]]
            lacking, over = np.maximum(surplus, 0.0), float(np.maximum(-surplus, 0.0).sum())
            total = float(lacking.sum())
            if total > 0.0 and (at == 0 or chooser.accept(min(total / over, 1.0))):
                return Outcome(path[at], lacking / total)
        return Outcome(0, targets[0])

    def whole(self, ratios: list[float]) -> float:
        """Capped ratio of the whole path."""
        return ratios[-1] / max(ratios[:-1])


@dataclass(frozen=True)
class ReleasedHSD(HSD):
    """The same, but the ratio of the whole path is not capped, as in the released code.

    Source: the authors' repository at b8575e2, `transformers/generation/utils.py` and
    `algorithm.py`: `probability_ratio` is a plain product, and its last entry decides.
    """

    name: ClassVar[str] = "hsd-as-released"

    def whole(self, ratios: list[float]) -> float:
        """Ratio of the whole path."""
        return ratios[-1]


@dataclass(frozen=True)
class ReleasedSpecTrGBV(OfPaths):
    """SpecTr-GBV (arXiv:2604.25925), as released in 2026.

    The paths are tried one after the other, each from where the last one that was accepted ends;
    a prefix that was rejected is not tried again.  Where the residual is empty the released code
    stops with an error, and here the target is sampled.

    Source: `src/engine.py` of the authors' repository at e399f44.  The paper also changes the
    target's distributions after a rejection (its Algorithm 2), which the code does not; with one
    drafted token there is nothing to change.
    """

    name: ClassVar[str] = "spectr-gbv-as-released"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Try path after path; see `Verification.verify`."""
        paths = [tree.ancestry(leaf) for leaf in tree.leaves.tolist()]
        count, length = len(paths), len(paths[0]) - 1
        end, drawn, wanted = 0, 1.0, 1.0
        rejected: set[int] = set()
        for path in paths:
            begin = int(tree.depths[end])
            s = b = 1.0
            for at, (above, node) in enumerate(pairwise(path), start=1):
                token = tree.tokens[node]
                s, b = s * tree.distributions[above][token], b * targets[above, token]
                if at <= begin:
                    continue
                if at == length:
                    if chooser.accept(_whole_path(s, b, count)):
                        return Outcome(node, targets[node])
                elif node not in rejected:
                    q, p = tree.distributions[node], targets[node]
                    if chooser.accept(_prefix(s, b, s * q, b * p, count)):
                        end, drawn, wanted = node, s, b
                    else:
                        rejected.add(node)
        p, q = targets[end], tree.distributions[end]
        left = p * (1.0 - _ratio(drawn * q, wanted * p) ** count)
        total = float(left.sum())
        return Outcome(end, left / total if total > 0.0 else p)


def _ratio(s: FloatArray | float, b: FloatArray | float) -> FloatArray:
    """The draft's mass over the target's, at most 1; 1 where the target's is 0."""
    s, b = np.asarray(s), np.asarray(b)
    return np.minimum(np.divide(s, b, out=np.ones_like(s), where=b > 0.0), 1.0)


def _whole_path(s: float, b: float, paths: int) -> float:
    """Probability that a whole path with these masses is accepted."""
    found = b * (1.0 - (1.0 - _ratio(s, b)) ** paths) / (1.0 - (1.0 - s) ** paths)
    return float(np.clip(found, 0.0, 1.0))


def _prefix(s: float, b: float, below: FloatArray, wanted: FloatArray, paths: int) -> float:
    """Probability that a prefix is accepted, from its masses and those of its continuations."""
    missing = (1.0 - _ratio(below, wanted)) ** paths
    left = float(wanted @ missing) - b * float((1.0 - _ratio(s, b)) ** paths)
    whole = 1.0 - (1.0 - s) ** paths - float(wanted @ (1.0 - missing))
    if whole == 0.0:
        return float(left > 0.0)
    return float(np.clip(left / whole, 0.0, 1.0))


RULES = [HSD(), ReleasedHSD(), ReleasedSpecTrGBV()]
