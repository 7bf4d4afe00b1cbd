"""The two-slice rule: one node of the selection of a path, for a batch of nodes.

Every drafted path has a score in [0, 1]; the path of the largest score is selected.  A node's
score law is cut in two at a threshold u, and each child takes a share lambda_x of the lower
slice and 1 - lambda_x of the upper: less of it where p / q of the child is larger.  Only
masses matter, so nothing is sorted, and validity does not depend on how well u is solved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import (
    TINY,
    WHOLE,
    between_breakpoints,
    bracket,
    invert,
    mean_of_powers,
    rising_root,
)

SPREAD = 1e-12
"""Slices whose means differ by less, or with less mass, are not told apart: children inherit."""


class BatchedScoreLaw(NamedTuple):
    """Score laws of B nodes of equal depth, as step densities on [0, 1].

    Attributes
    ----------
    edges : Tensor, shape (B, D + 1), float64
        Ends of the cells, from 0 to 1, ascending; cells may be empty.
    density : Tensor, shape (B, D), float64
        Of total mass 1.
    gain : Tensor, shape (B, 1), float64
        R = Gamma(prefix) / Q(prefix), the mean of W = K u^(K-1).
    weight : Tensor, shape (B, 1), float64
        Block verification's w = T(prefix) / Gamma(prefix), at most 1.
    """

    edges: Tensor
    density: Tensor
    gain: Tensor
    weight: Tensor


class TwoSlice(NamedTuple):
    """How B nodes share their scores among their children.

    Attributes
    ----------
    threshold : Tensor, shape (B, 1), float64
        u.
    lower, upper : Tensor, shape (B, 1), float64
        s and s': mass of the distribution below and above u.
    lower_mean, upper_mean : Tensor, shape (B, 1), float64
        m0 and m1: means of W / R below and above u.
    weight : Tensor, shape (B, 1), float64
        w of the node.
    lower_scale, upper_scale : Tensor, shape (B, 1), float64
        Factors on lambda and on 1 - lambda (one of them is 1) such that sum q lambda = s.
    """

    threshold: Tensor
    lower: Tensor
    upper: Tensor
    lower_mean: Tensor
    upper_mean: Tensor
    weight: Tensor
    lower_scale: Tensor
    upper_scale: Tensor

    def share(self, target: Tensor, draft: Tensor) -> Tensor:
        """lambda: the part of the lower slice that children take, shape (B, m).

        Parameters
        ----------
        target, draft : Tensor, shape (B, m), float64
            p and q of m children of each node, normalised over all of them.
        """
        share = _share(self, target, draft)
        lower, upper = self.lower_scale * share, self.upper_scale * (1.0 - share)
        return torch.where(self.lower_scale < 1.0, lower, 1.0 - upper)

    def ratio(self, target: Tensor, draft: Tensor) -> Tensor:
        """Ratio r = Gamma(x | prefix) / q of children, shape (B, m); arguments as for `share`."""
        share = self.share(target, draft)
        return share * self.lower_mean + (1.0 - share) * self.upper_mean


def root_law(nodes: int, like: Tensor) -> BatchedScoreLaw:
    """Return the law of `nodes` roots: uniform scores, R = w = 1, on the device of `like`."""
    one = torch.ones(nodes, 1, dtype=torch.float64, device=like.device)
    return BatchedScoreLaw(torch.cat([0.0 * one, one], 1), one, one, one)


def two_slice_step(law: BatchedScoreLaw, target: Tensor, draft: Tensor, paths: int) -> TwoSlice:
    """Find how each node shares its scores among its children.

    Parameters
    ----------
    law : BatchedScoreLaw
        Of B nodes.
    target, draft : Tensor, shape (B, V), float64
        Their next-token distributions p and q, each row of sum one.
    paths : int
        K.

    Returns
    -------
    TwoSlice

    Notes
    -----
    The threshold solves sum min(max(w p, m0 q), m1 q) = 1, whose left side rises with u.  The
    solutions are an interval only if w = 1 and no child is clipped; its ends then follow from
    the least and the largest p / q alone, and its midpoint is taken.  Otherwise these ends
    bracket the root, which at most 26 passes over (B, V) find, and one more for each time that
    the law's cells can be halved.

    Source: the rule is this library's own; selection of a path followed by block verification
    is Thomas and Pal, Greedy Multi-Path Block Verification, Lemma 4.4 and Theorem 4.6.
    """
    live = draft > 0
    wanted = law.weight * target / draft
    least = wanted.masked_fill(~live, torch.inf).amin(1, keepdim=True)
    # mass of p where there is no child is never matched: then nothing above 0 is large enough
    most = torch.where(live, wanted, torch.where(target > 0, torch.inf, 0.0))
    most = most.amax(1, keepdim=True)
    last_low, _ = _bracket_mean(law, paths, least, 0)
    _, first_high = _bracket_mean(law, paths, most, 1)
    whole = law.weight >= 1.0 - WHOLE
    end = torch.where(whole, first_high, 1.0)
    root = _solve_threshold(law, paths, law.weight * target, draft, last_low, end)
    free = whole & (first_high <= last_low)
    split = _cut(law, paths, torch.where(free, 0.5 * (first_high + last_low), root))
    share = _share(split, target, draft)
    held = (draft * share).sum(1, keepdim=True)
    missing = (draft * (1.0 - share)).sum(1, keepdim=True)
    return split._replace(
        lower_scale=(split.lower / held.clamp(min=TINY)).clamp(max=1.0),
        upper_scale=(split.upper / missing.clamp(min=TINY)).clamp(max=1.0),
    )


def child(law: BatchedScoreLaw, split: TwoSlice, target: Tensor, draft: Tensor) -> BatchedScoreLaw:
    """Distribution of the scores of one child of each node.

    Parameters
    ----------
    law, split
        Of the B nodes.
    target, draft : Tensor, shape (B, 1), float64
        p and q of the child, normalised; q > 0.

    Returns
    -------
    BatchedScoreLaw
        One cell more than `law`.
    """
    share = split.share(target, draft)
    edges = torch.cat([law.edges, split.threshold], 1).sort(1).values
    left = edges[:, :-1].contiguous()
    cell = torch.searchsorted(law.edges[:, :-1].contiguous(), left, right=True) - 1
    below = share / split.lower.clamp(min=TINY)
    above = (1.0 - share) / split.upper.clamp(min=TINY)
    factor = torch.where(left < split.threshold, below, above)
    # rounding over an empty slice has no bound
    factor = factor.masked_fill(_alike(split), 1.0)
    ratio = share * split.lower_mean + (1.0 - share) * split.upper_mean
    weight = (law.weight * target / (draft * ratio).clamp(min=TINY)).clamp(max=1.0)
    return BatchedScoreLaw(edges, law.density.gather(1, cell) * factor, law.gain * ratio, weight)


def draw_scores(law: BatchedScoreLaw, uniform: Tensor) -> Tensor:
    """Draw one score a node by inversion, shape (B,), from uniform numbers of shape (B,)."""
    mass = law.density * law.edges.diff(dim=1)
    cumulative = mass.cumsum(1)
    cell, level = invert(cumulative, uniform[:, None])
    inside = level - (cumulative - mass).gather(1, cell)
    score = law.edges.gather(1, cell) + inside / law.density.gather(1, cell).clamp(min=TINY)
    return torch.minimum(score, law.edges.gather(1, cell + 1))[:, 0]


def _share(split: TwoSlice, target: Tensor, draft: Tensor) -> Tensor:
    spread = split.upper_mean - split.lower_mean
    wanted = split.weight * target / draft
    share = ((split.upper_mean - wanted) / spread.clamp(min=SPREAD)).clamp(0.0, 1.0)
    # a token with q = 0 has no child: any share does
    share = torch.where(draft > 0, share, split.lower)
    return torch.where(_alike(split), split.lower, share)


def _alike(split: TwoSlice) -> Tensor:
    spread = split.upper_mean - split.lower_mean
    return torch.minimum(spread, torch.minimum(split.lower, split.upper)) < SPREAD


def _cut(law: BatchedScoreLaw, paths: int, threshold: Tensor) -> TwoSlice:
    """Masses and means of W / R on both sides of thresholds (B, m)."""
    u, density = threshold[..., None], law.density[:, None]
    left, right = law.edges[:, None, :-1], law.edges[:, None, 1:]
    below = torch.minimum(left, u), torch.minimum(right, u)
    above = torch.maximum(left, u), torch.maximum(right, u)
    lower, upper = ((density * (b - a)).sum(-1) for a, b in (below, above))
    low, high = (
        (density * ((b - a) * mean_of_powers(a, b, paths))).sum(-1) for a, b in (below, above)
    )
    # an empty slice has the mean at its end, which keeps both means rising in the threshold
    gain = law.gain.clamp(min=TINY)
    edge = paths * threshold ** (paths - 1) / gain
    lower_mean = torch.where(lower > 0, low / (gain * lower).clamp(min=TINY), edge)
    upper_mean = torch.where(upper > 0, high / (gain * upper).clamp(min=TINY), edge)
    one = torch.ones_like(threshold)
    return TwoSlice(threshold, lower, upper, lower_mean, upper_mean, law.weight, one, one)


def _bracket_mean(
    law: BatchedScoreLaw, paths: int, wanted: Tensor, slice_index: int
) -> tuple[Tensor, Tensor]:
    """Bracket the threshold where the lower (0) or upper (1) slice reaches the wanted mean."""

    def short(points: Tensor) -> Tensor:
        cut = _cut(law, paths, points)
        return (cut.lower_mean, cut.upper_mean)[slice_index] < wanted

    return bracket(short, torch.zeros_like(wanted), torch.ones_like(wanted))


def _solve_threshold(
    law: BatchedScoreLaw, paths: int, wanted: Tensor, draft: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Root in [a, b] of the excess of sum min(max(w p, m0 q), m1 q) over 1, which rises in u."""

    def excess(u: Tensor) -> Tensor:
        cut = _cut(law, paths, u)
        clipped = torch.maximum(wanted, cut.lower_mean * draft)
        return torch.minimum(clipped, cut.upper_mean * draft).sum(1, keepdim=True) - 1.0

    return rising_root(excess, *between_breakpoints(excess, a, b, law.edges[:, :-1]))
