"""The two-slice rule for a batch of nodes, one step of the selection of a path.

Every drafted path has a score in [0, 1]; the path with the largest score is selected.  The score
law of a node is cut in two slices at a threshold u.  Each child gets a share lambda_x of the lower
slice and 1 - lambda_x of the upper slice; lambda_x falls with p / q of the child.  Only masses
matter, so no sort is needed, and the selection is valid for any accuracy of u.
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
"""Smallest slice mass and difference of slice means; below it, children inherit the law."""


class BatchedScoreLaw(NamedTuple):
    """Score laws of B nodes of equal depth, as piecewise constant densities on [0, 1].

    Attributes
    ----------
    edges : Tensor, shape (B, D + 1), float64
        Edges of the cells, ascending from 0 to 1; cells may be empty.
    density : Tensor, shape (B, D), float64
        Density on each cell, of total mass 1.
    gain : Tensor, shape (B, 1), float64
        R = Gamma(prefix) / Q(prefix), the mean of W = K u^(K-1).
    weight : Tensor, shape (B, 1), float64
        Weight w = T(prefix) / Gamma(prefix) of block verification, at most 1.
    """

    edges: Tensor
    density: Tensor
    gain: Tensor
    weight: Tensor


class TwoSlice(NamedTuple):
    """Split of the scores of B nodes among their children.

    Attributes
    ----------
    threshold : Tensor, shape (B, 1), float64
        Threshold u.
    lower, upper : Tensor, shape (B, 1), float64
        Masses s and s' of the distribution below and above u.
    lower_mean, upper_mean : Tensor, shape (B, 1), float64
        Means m0 and m1 of W / R below and above u.
    weight : Tensor, shape (B, 1), float64
        Weight w of the node.
    lower_scale, upper_scale : Tensor, shape (B, 1), float64
        Factors of lambda and of 1 - lambda such that sum q lambda = s; one factor is 1.
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
        """Return lambda, the share of children in the lower slice, shape (B, m).

        Parameters
        ----------
        target, draft : Tensor, shape (B, m), float64
            p and q of m children of each node, normalised over all children.
        """
        share = _share(self, target, draft)
        lower, upper = self.lower_scale * share, self.upper_scale * (1.0 - share)
        return torch.where(self.lower_scale < 1.0, lower, 1.0 - upper)

    def ratio(self, target: Tensor, draft: Tensor) -> Tensor:
        """Return r = Gamma(x | prefix) / q of children, shape (B, m); arguments as for `share`."""
        share = self.share(target, draft)
        return share * self.lower_mean + (1.0 - share) * self.upper_mean


def root_law(nodes: int, like: Tensor) -> BatchedScoreLaw:
    """Return the law of `nodes` roots: uniform scores, R = w = 1, on the device of `like`."""
    one = torch.ones(nodes, 1, dtype=torch.float64, device=like.device)
    return BatchedScoreLaw(torch.cat([0.0 * one, one], 1), one, one, one)


def two_slice_step(law: BatchedScoreLaw, target: Tensor, draft: Tensor, paths: int) -> TwoSlice:
    """Compute the split of the scores of each node among its children.

    Parameters
    ----------
    law : BatchedScoreLaw
        Score laws of B nodes.
    target, draft : Tensor, shape (B, V), float64
        Next-token distributions p and q of the nodes, normalised.
    paths : int
        Number of paths K.

    Returns
    -------
    TwoSlice

    Notes
    -----
    The threshold u solves sum min(max(w p, m0 q), m1 q) = 1, whose left side rises with u.  If
    w = 1 and no child is clipped, the solutions form an interval, whose ends follow from the
    smallest and the largest p / q; the midpoint is used.  Otherwise these ends bracket the root.
    The root search uses at most 26 passes over (B, V) plus log2(number of cells of the law).

    Source: the rule is new in this library.  Selection of a path followed by block verification
    is from Thomas and Pal, Greedy Multi-Path Block Verification, Lemma 4.4 and Theorem 4.6.
    """
    live = draft > 0
    required = law.weight * target / draft
    least = required.masked_fill(~live, torch.inf).amin(1, keepdim=True)
    # Tokens with p > 0 and q = 0 have no child, so their ratio is infinite.
    most = torch.where(live, required, torch.where(target > 0, torch.inf, 0.0))
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
    """Return the score law of one child of each node.

    Parameters
    ----------
    law, split
        Laws and splits of the B nodes.
    target, draft : Tensor, shape (B, 1), float64
        p and q of the child, normalised; q > 0.

    Returns
    -------
    BatchedScoreLaw
        Laws of the children, with one cell more than `law`.
    """
    share = split.share(target, draft)
    edges = torch.cat([law.edges, split.threshold], 1).sort(1).values
    left = edges[:, :-1].contiguous()
    cell = torch.searchsorted(law.edges[:, :-1].contiguous(), left, right=True) - 1
    below = share / split.lower.clamp(min=TINY)
    above = (1.0 - share) / split.upper.clamp(min=TINY)
    factor = torch.where(left < split.threshold, below, above)
    # The factors of a nearly empty slice are rounding noise.
    factor = factor.masked_fill(_is_degenerate(split), 1.0)
    ratio = share * split.lower_mean + (1.0 - share) * split.upper_mean
    weight = (law.weight * target / (draft * ratio).clamp(min=TINY)).clamp(max=1.0)
    return BatchedScoreLaw(edges, law.density.gather(1, cell) * factor, law.gain * ratio, weight)


def draw_scores(law: BatchedScoreLaw, uniform: Tensor) -> Tensor:
    """Draw one score per node by inversion, shape (B,), from uniform numbers of shape (B,)."""
    mass = law.density * law.edges.diff(dim=1)
    cumulative = mass.cumsum(1)
    cell, level = invert(cumulative, uniform[:, None])
    inside = level - (cumulative - mass).gather(1, cell)
    score = law.edges.gather(1, cell) + inside / law.density.gather(1, cell).clamp(min=TINY)
    return torch.minimum(score, law.edges.gather(1, cell + 1))[:, 0]


def _share(split: TwoSlice, target: Tensor, draft: Tensor) -> Tensor:
    spread = split.upper_mean - split.lower_mean
    required = split.weight * target / draft
    share = ((split.upper_mean - required) / spread.clamp(min=SPREAD)).clamp(0.0, 1.0)
    # A token with q = 0 has no child, so its share is arbitrary.
    share = torch.where(draft > 0, share, split.lower)
    return torch.where(_is_degenerate(split), split.lower, share)


def _is_degenerate(split: TwoSlice) -> Tensor:
    spread = split.upper_mean - split.lower_mean
    return torch.minimum(spread, torch.minimum(split.lower, split.upper)) < SPREAD


def _cut(law: BatchedScoreLaw, paths: int, threshold: Tensor) -> TwoSlice:
    """Compute the masses and the means of W / R on both sides of thresholds (B, m)."""
    u, density = threshold[..., None], law.density[:, None]
    left, right = law.edges[:, None, :-1], law.edges[:, None, 1:]
    below = torch.minimum(left, u), torch.minimum(right, u)
    above = torch.maximum(left, u), torch.maximum(right, u)
    lower, upper = ((density * (b - a)).sum(-1) for a, b in (below, above))
    low, high = (
        (density * ((b - a) * mean_of_powers(a, b, paths))).sum(-1) for a, b in (below, above)
    )
    # Use the value at the end of an empty slice as its mean, so that both means rise with u.
    gain = law.gain.clamp(min=TINY)
    edge = paths * threshold ** (paths - 1) / gain
    lower_mean = torch.where(lower > 0, low / (gain * lower).clamp(min=TINY), edge)
    upper_mean = torch.where(upper > 0, high / (gain * upper).clamp(min=TINY), edge)
    one = torch.ones_like(threshold)
    return TwoSlice(threshold, lower, upper, lower_mean, upper_mean, law.weight, one, one)


def _bracket_mean(
    law: BatchedScoreLaw, paths: int, mean: Tensor, slice_index: int
) -> tuple[Tensor, Tensor]:
    """Bracket the threshold at which the lower (0) or upper (1) slice reaches `mean`."""

    def short(points: Tensor) -> Tensor:
        cut = _cut(law, paths, points)
        return (cut.lower_mean, cut.upper_mean)[slice_index] < mean

    return bracket(short, torch.zeros_like(mean), torch.ones_like(mean))


def _solve_threshold(
    law: BatchedScoreLaw, paths: int, weighted: Tensor, draft: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Return the root u in [a, b] of sum min(max(w p, m0 q), m1 q) - 1; `weighted` is w p."""

    def excess(u: Tensor) -> Tensor:
        cut = _cut(law, paths, u)
        clipped = torch.maximum(weighted, cut.lower_mean * draft)
        return torch.minimum(clipped, cut.upper_mean * draft).sum(1, keepdim=True) - 1.0

    return rising_root(excess, *between_breakpoints(excess, a, b, law.edges[:, :-1]))
