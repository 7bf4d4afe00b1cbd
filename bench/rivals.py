"""Rules of papers that equal another rule or are not lossless, rebuilt to be audited.

These rules are not part of otlp: commands do not accept their names, and their text may not have
the target's distribution.  `referee.py` includes them in its table like the rules of any file;
`tests/otlp_lab/test_referee.py` contains their smallest counterexamples.
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
    """Hierarchical speculative decoding with capped branches, as stated in the paper.

    Source: arXiv:2601.05724, Definitions 4 to 6, Eqs. 16 to 20, Algorithm 2.  r(X) is the ratio of
    the masses of a prefix X, and the capped ratio r*(X) is r(X) divided by the largest ratio above
    1 of the shorter prefixes.  The whole path is accepted with probability min(r*, 1).  A shorter
    prefix is accepted with the quotient of the sums over its continuations of (r* - 1)^+ q and of
    (1 - r*)^+ q; else the next shorter prefix is attempted.  This equals block verification.
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
            # r* q of the continuations, divided by the prefix's q.
            wanted = targets[path[at]] * (ratios[at] / max(ratios[: at + 1]))
            surplus = wanted - tree.distributions[path[at]]
            lacking, over = np.maximum(surplus, 0.0), float(np.maximum(-surplus, 0.0).sum())
            total = float(lacking.sum())
            if total > 0.0 and (at == 0 or chooser.accept(min(total / over, 1.0))):
                return Outcome(path[at], lacking / total)
        return Outcome(0, targets[0])

    def whole(self, ratios: list[float]) -> float:
        """Return the capped ratio of the whole path."""
        return ratios[-1] / max(ratios[:-1])


@dataclass(frozen=True)
class ReleasedHSD(HSD):
    """HSD without the cap for the whole path, as in the released code.

    Source: the authors' repository at b8575e2, `transformers/generation/utils.py` and
    `algorithm.py`: `probability_ratio` is a plain product, and its last entry is used.
    """

    name: ClassVar[str] = "hsd-as-released"

    def whole(self, ratios: list[float]) -> float:
        """Return the ratio of the whole path."""
        return ratios[-1]


@dataclass(frozen=True)
class ReleasedSpecTrGBV(OfPaths):
    """SpecTr-GBV (arXiv:2604.25925), as released in 2026.

    The paths are attempted one after the other, each from the end of the accepted prefix; a
    rejected prefix is not attempted again.  If the residual is empty, the released code raises an
    error, and this class samples from the target.

    Source: `src/engine.py` of the authors' repository at e399f44.  The paper also changes the
    target's distributions after a rejection (its Algorithm 2), but the code does not; this makes no
    difference for one drafted token.
    """

    name: ClassVar[str] = "spectr-gbv-as-released"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Attempt the paths in order; see `Verification.verify`."""
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
    """Return the draft's mass divided by the target's, at most 1; 1 if the target's is 0."""
    s, b = np.asarray(s), np.asarray(b)
    return np.minimum(np.divide(s, b, out=np.ones_like(s), where=b > 0.0), 1.0)


def _whole_path(s: float, b: float, paths: int) -> float:
    """Return the acceptance probability of a whole path with these masses."""
    found = b * (1.0 - (1.0 - _ratio(s, b)) ** paths) / (1.0 - (1.0 - s) ** paths)
    return float(np.clip(found, 0.0, 1.0))


def _prefix(s: float, b: float, below: FloatArray, wanted: FloatArray, paths: int) -> float:
    """Return the acceptance probability of a prefix from its and its continuations' masses."""
    missing = (1.0 - _ratio(below, wanted)) ** paths
    left = float(wanted @ missing) - b * float((1.0 - _ratio(s, b)) ** paths)
    whole = 1.0 - (1.0 - s) ** paths - float(wanted @ (1.0 - missing))
    if whole == 0.0:
        return float(left > 0.0)
    return float(np.clip(left / whole, 0.0, 1.0))


RULES = [HSD(), ReleasedHSD(), ReleasedSpecTrGBV()]
