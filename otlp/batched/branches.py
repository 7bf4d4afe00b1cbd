"""The children of slots in a tournament: their shares of the wins, and what each of them knows.

`otlp.decode.Tournament` for a batch of slots, in the same three steps: certain tokens take what
the target wants of them and the drawn slots share the rest; a score is parted among tokens that
end a path and the others; and the tokens of a drawn slot mix to its score by the two-slice rule.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, WHOLE, between_knees, bracket, rising_root
from otlp.batched.score_chains import (
    ChainScores,
    Place,
    cut,
    ends,
    place_at,
    powered,
    scaled,
    slices,
    top_mean,
    win_place,
)
from otlp.batched.tree_shapes import DRAWN, ENDING, LAST, ON
from otlp.numerics.score_chains import NEGLIGIBLE

FLAT = 1e-12
"""Tolerance below which conditional means count as equal to one."""


class NodeStates(NamedTuple):
    """What M slots know.

    Attributes
    ----------
    scores : ChainScores
        Of the largest score below each.
    weight : Tensor, shape (M, 1), float64
        Block verification's weight of the slot's path.
    live : Tensor, shape (M, 1), bool
        Whether it can win; if not, its score means nothing.
    """

    scores: ChainScores
    weight: Tensor
    live: Tensor


class BatchedDraws(NamedTuple):
    """How drawn siblings share out their wins among tokens; (M, 1) each.

    Attributes
    ----------
    share : Tensor
        Probability that one of them wins; 0 where none can.
    low, high : Tensor
        Mean win densities of the two slices; 1 where tokens are not told apart.
    up, down : Tensor
        Factors of the upper shares and of the lower ones; both at most 1, one of them 1.
    """

    share: Tensor
    low: Tensor
    high: Tensor
    up: Tensor
    down: Tensor


class _Slices(NamedTuple):
    """Where drawn siblings' score is cut in two, and the masses on both sides; (M, 1) each."""

    below: Tensor
    above: Tensor
    cell: Tensor
    offset: Tensor


class _Child(NamedTuple):
    """How a child's state follows from its parent's score; shape (M, W) each.

    The score is raised to a power and cut at a place; its slices are scaled.
    """

    power: Tensor
    cell: Tensor
    offset: Tensor
    lower: Tensor
    upper: Tensor
    weight: Tensor
    live: Tensor

    def otherwise(self, where: Tensor, other: _Child) -> _Child:
        """Those of `other` at some children."""
        pairs = zip(self, other, strict=True)
        return _Child(*(torch.where(where, theirs, own) for own, theirs in pairs))


def branch(
    states: NodeStates,
    kinds: Tensor,
    tokens: Tensor,
    wanted: Tensor,
    p: Tensor | None,
    rest: Tensor | None,
    *,
    parted: bool,
    drawn: bool,
    last: bool,
) -> tuple[NodeStates, NodeStates, Tensor, BatchedDraws, BatchedDraws]:
    """Find what the children of M slots know, W of each.

    Parameters
    ----------
    states : NodeStates
        Of the slots.
    kinds, tokens : Tensor, shape (M, W), int64
        Of the children.
    wanted : Tensor, shape (M, W), float64
        The target's probability of their tokens.
    p, rest : Tensor, shape (M, V), float64, or None
        The target's distribution, and what drawn children are drawn from; None if there are none.
    parted : bool
        Whether to part scores among tokens that end a path and others.
    drawn, last : bool
        Whether there are drawn children that go on, and such that end a path.

    Returns
    -------
    children : NodeStates
        Of M W slots, side by side.
    end : NodeStates
        One score for all certain tokens of a slot that end a path.
    shares : Tensor, shape (M, W), float64
        Probability that each certain child wins, given that its parent does.
    draws, last : BatchedDraws
        Of the drawn children, and of those that end a path whatever they are.
    """
    weight, want = states.weight, states.weight * wanted
    sure, ending = (kinds == ON) | (kinds == ENDING), kinds == ENDING
    count, last_count = (
        (kinds == kind).sum(1, keepdim=True, dtype=torch.float64).clamp(min=1.0)
        for kind in (DRAWN, LAST)
    )
    shares, free = _shares(sure, want, drawn or last)
    ends_share, on_share = (
        (shares * some).sum(1, keepdim=True) for some in (ending, sure & ~ending)
    )

    kept = torch.full_like(free, float(drawn))
    if drawn and last:
        # what only ends a path gets what the others would waste
        assert p is not None and rest is not None
        top = _parted(states, ends_share, 0.0 * free, on_share + free)[2]
        slot = powered(top.scores, _power(free / count, on_share + free))
        tried, _, ratio = _draw(slot, free, weight * p, rest)
        wasted = (rest * (tried.low - ratio).clamp(min=0.0)).sum(1, keepdim=True)
        kept = 1.0 - wasted.clamp(max=1.0)
    high, low = _split(free, kept)
    parts = ends_share, low, on_share + high
    alike = (states._replace(live=states.live & (part > NEGLIGIBLE)) for part in parts)
    end, middle, above = _parted(states, *parts) if parted else alike

    live = torch.where(ending, end.live, above.live) & (shares > 0)
    found = _certain_children(_power(shares, on_share + high), shares, want, live)
    draws = ending_draws = _no_draws(weight)
    left = None if p is None else weight * p
    if drawn:
        assert left is not None and rest is not None
        power = _power(high / count, on_share + high)
        share = high.masked_fill(~above.live | (high <= NEGLIGIBLE), 0.0)
        draws, cut_at, _ = _draw(powered(above.scores, power), share, left, rest)
        at_tokens = _at_tokens(draws, cut_at, power, want, rest.gather(1, tokens))
        found = found.otherwise(kinds == DRAWN, at_tokens)
        if last:
            left = (left - drawn_masses(draws, left, rest)).clamp_(min=0.0)
    if last:
        assert left is not None and rest is not None
        power = 1.0 / last_count
        share = low.masked_fill(~middle.live | (low <= NEGLIGIBLE), 0.0)
        ending_draws, cut_at, _ = _draw(powered(middle.scores, power), share, left, rest)
        at_tokens = _at_tokens(
            ending_draws, cut_at, power, left.gather(1, tokens), rest.gather(1, tokens)
        )
        found = found.otherwise(kinds == LAST, at_tokens)
    children = _children(above.scores, middle.scores if last else above.scores, kinds, found)
    return children, end, shares, draws, ending_draws


def _certain_children(power: Tensor, shares: Tensor, want: Tensor, live: Tensor) -> _Child:
    """Of certain children, whose scores are not cut."""
    one = torch.ones_like(shares)
    whole = torch.zeros_like(shares, dtype=torch.int64), torch.full_like(shares, -torch.inf)
    weight = (want / shares.clamp(min=TINY)).clamp(max=1.0)
    return _Child(power, *whole, one, one, weight, live)


def _split(free: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """What goes to drawn children that go on, and to those that end; not what is negligible."""
    high, low = free * kept, free * (1.0 - kept)
    slight, more = torch.minimum(high, low) < NEGLIGIBLE, high > low
    return torch.where(slight, free * more, high), torch.where(slight, free * ~more, low)


def _shares(sure: Tensor, want: Tensor, drawn: bool) -> tuple[Tensor, Tensor]:
    """What certain children get of a slot's scores, (M, W), and what is left for drawn ones."""
    asked, free = torch.where(sure, want, 0.0), torch.zeros_like(want[:, :1])
    if drawn:
        # exact only to rounding, as shares may be
        free = (1.0 - asked.sum(1, keepdim=True)).clamp(min=0.0)
    else:
        asked = torch.where((asked > 0).any(1, keepdim=True), asked, sure.double())
    least = NEGLIGIBLE * (asked.sum(1, keepdim=True) + free)
    asked, free = (part.masked_fill(part < least, 0.0) for part in (asked, free))
    total = asked.sum(1, keepdim=True) + free
    return asked / total, free / total


def drawn_masses(draws: BatchedDraws, wanted: Tensor, q: Tensor) -> Tensor:
    """Probability that each token wins by a drawn child, of shape (M, V)."""
    kept = _clipped(draws, wanted, q)
    raised = draws.low + draws.up * (kept - draws.low)
    lowered = draws.high - draws.down * (draws.high - kept)
    masses = draws.share * q * torch.where(draws.down < 1.0, lowered, raised)
    # where nothing is drawn, q may be anything
    return torch.where((draws.share > 0) & (q > 0), masses, 0.0)


def _power(share: Tensor, whole: Tensor) -> Tensor:
    """Share of a whole; anything where it is none, which never wins."""
    return (share / whole.clamp(min=TINY)).clamp(NEGLIGIBLE, 1.0)


def _ratio(share: Tensor, wanted: Tensor, q: Tensor) -> Tensor:
    """What is wanted of each token over what is drawn; 0 where nothing is."""
    return torch.where(q > 0, wanted / (share * q).clamp(min=TINY), 0.0)


def _clipped(draws: BatchedDraws, wanted: Tensor, q: Tensor) -> Tensor:
    return _ratio(draws.share, wanted, q).clamp(draws.low, draws.high)


def _no_draws(like: Tensor) -> BatchedDraws:
    one, none = torch.ones_like(like), torch.zeros_like(like)
    return BatchedDraws(none, one, one, one, one)


def _draw(
    scores: ChainScores, share: Tensor, wanted: Tensor, q: Tensor
) -> tuple[BatchedDraws, _Slices, Tensor]:
    """Cut the scores of drawn slots in two, as the target wants their tokens (M, V)."""
    ratio = _ratio(share, wanted, q)
    place = _threshold(scores, ratio, q)
    # the masses as the cells of the children will have them
    parts = cut(scores, place)
    lower = torch.arange(parts.edges.shape[1], device=place.cell.device) <= place.cell
    below, above, won_below, won_above = (
        (part * some).sum(1, keepdim=True)
        for part in (parts.masses, parts.wins) for some in (lower, ~lower)
    )  # fmt: skip
    below = below + scores.bottom
    low, high = won_below / below.clamp(min=TINY), won_above / above.clamp(min=TINY)
    flat = (below <= 0) | (above <= 0) | (high - low < FLAT)
    low, high = (torch.where(flat, 1.0, mean) for mean in (low, high))
    kept = ratio.clamp(low, high)
    upper = (q * (kept - low)).sum(1, keepdim=True)
    lowered = (q * (high - kept)).sum(1, keepdim=True)
    # at most 1, one of them 1: then the children's scores mix to this one, sum q lambda = below
    scale = (upper + lowered) / (below + above)
    short = upper > above * scale
    up = torch.where(short, above * scale / upper.clamp(min=TINY), 1.0)
    down = (below * scale / lowered.clamp(min=TINY)).clamp(max=1.0)
    down = torch.where(short | flat, 1.0, down)
    up = torch.where(flat, 1.0, up)
    return BatchedDraws(share, low, high, up, down), _Slices(below, above, *place), ratio


def _threshold(scores: ChainScores, ratio: Tensor, q: Tensor) -> Place:
    """Solve sum_x q min(max(ratio, low), high) = 1 for the place that scores are cut at.

    The sum rises with the place.  It is solved for in u = z^h, h the product of all powers, in
    which an unskewed score is uniform.  Where all places in an interval fit, its middle is taken.
    """
    top = top_mean(scores)

    def means(of: ChainScores, top: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        below, above, won_below, won_above = slices(of, _place(of, u))
        low = won_below / below.clamp(min=TINY)
        return low, torch.where(above > 0, won_above / above.clamp(min=TINY), top)

    def excess(u: Tensor) -> Tensor:
        found = (q * ratio.clamp(*means(scores, top, u))).sum(1, keepdim=True) - 1.0
        return found.nan_to_num(0.0)

    least = ratio.masked_fill(q <= 0, torch.inf).amin(1, keepdim=True)
    most = ratio.amax(1, keepdim=True)
    power = scores.powers.prod(1, keepdim=True)
    first, last = ((power * end).exp() for end in ends(scores))
    # where the lower slice ceases to ask for less than any token wants, and the upper for more
    count = ratio.shape[0]
    twice = ChainScores(*(torch.cat([part, part]) for part in scores))

    def short(points: Tensor) -> Tensor:
        low, high = means(twice, top.repeat(2, 1), points)
        return torch.cat([low[:count] <= least, high[count:] < most])

    a, b = bracket(short, first.repeat(2, 1), last.repeat(2, 1))
    last_low, first_high = a[:count], b[count:]
    whole = (q * ratio.clamp(max=most)).sum(1, keepdim=True)
    start = torch.where(whole <= 1.0 + WHOLE, last_low, first)
    stop = torch.where(whole >= 1.0 - WHOLE, first_high, last)
    free = ((whole - 1.0).abs() <= WHOLE) & (first_high <= last_low)
    a, b = torch.minimum(start, stop), torch.maximum(start, stop)
    root = rising_root(excess, *between_knees(excess, a, b, (power * scores.edges).exp()))
    return _place(scores, torch.where(free, 0.5 * (first_high + last_low), root))


def _place(scores: ChainScores, u: Tensor) -> Place:
    return place_at(scores, u.log() / scores.powers.prod(1, keepdim=True))


def _at_tokens(
    draws: BatchedDraws, cut_at: _Slices, power: Tensor, wanted: Tensor, q: Tensor
) -> _Child:
    """What drawn children know, given what is wanted of their tokens and what was drawn, (M, W)."""
    kept, gap = _clipped(draws, wanted, q), (draws.high - draws.low).clamp(min=TINY)
    lower, upper = draws.down * (draws.high - kept) / gap, draws.up * (kept - draws.low) / gap
    upper = torch.where(draws.down < 1.0, 1.0 - lower, upper)
    lower = torch.where(draws.down < 1.0, lower, 1.0 - upper)
    lower, upper = (part.masked_fill(part <= NEGLIGIBLE, 0.0) for part in (lower, upper))
    ratio = lower * draws.low + upper * draws.high
    lower, upper = lower / cut_at.below.clamp(min=TINY), upper / cut_at.above.clamp(min=TINY)
    flat = draws.low == draws.high
    lower, upper, ratio = (torch.where(flat, 1.0, part) for part in (lower, upper, ratio))
    weight = (wanted / (draws.share * q * ratio).clamp(min=TINY)).clamp(max=1.0)
    power, cell, offset = (part.expand_as(kept) for part in (power, cut_at.cell, cut_at.offset))
    live = (draws.share > 0) & (ratio > NEGLIGIBLE)
    return _Child(power, cell, offset, lower, upper, weight, live)


def _children(above: ChainScores, middle: ChainScores, kinds: Tensor, found: _Child) -> NodeStates:
    """Build what M W children know, side by side."""
    parent = torch.arange(kinds.shape[0], device=kinds.device).repeat_interleave(kinds.shape[1])
    scores = above.take(parent)
    if middle is not above:
        last = (kinds == LAST).flatten()
        scores = ChainScores(*(
            torch.where(last.view(-1, *[1] * (one.ndim - 1)), other, one)
            for one, other in zip(scores, middle.take(parent), strict=True)
        ))  # fmt: skip
    power, cell, offset, lower, upper, weight, live = (part.reshape(-1, 1) for part in found)
    parts = cut(powered(scores, power), Place(cell, offset))
    below = torch.arange(parts.edges.shape[1], device=cell.device) <= cell
    scores = scaled(parts, torch.where(below, lower, upper), parts.bottom * lower)
    return NodeStates(scores, weight.masked_fill(~live, 0.0), live)


def _parted(
    states: NodeStates, ends_share: Tensor, low: Tensor, high: Tensor
) -> tuple[NodeStates, NodeStates, NodeStates]:
    """Part scores in three, whose maximum they are; the first wins where it is low."""
    scores, weight, live = states
    below = ends_share + low
    total = below + high
    upper = torch.where(below <= NEGLIGIBLE * total, 0.0, below / total)
    upper = torch.where(high <= NEGLIGIBLE * total, 1.0, upper)
    lower = torch.where(ends_share <= NEGLIGIBLE * below, 0.0, upper * (ends_share / below))
    lower = torch.where(low <= NEGLIGIBLE * below, upper, lower)
    place, last = win_place(scores, lower), win_place(scores, upper)
    scores = cut(cut(scores, last), place)
    cells = torch.arange(scores.edges.shape[1], device=weight.device)
    first_part, last_part = cells <= place.cell, cells > last.cell + 1
    zero = torch.zeros_like(scores.masses)
    reached = [
        scores.bottom + torch.where(some, scores.masses, zero).sum(1, keepdim=True)
        for some in (first_part, ~last_part)
    ]
    by = [1.0 / mass.clamp(min=TINY) for mass in reached]
    parts = (
        (torch.where(first_part, by[0], zero), scores.bottom * by[0], reached[0] > 0),
        (torch.where(first_part | last_part, zero, by[1]), reached[0] * by[1],
         (lower < upper) & (reached[1] > 0)),
        (torch.where(last_part, 1.0, zero), reached[1], upper < 1.0),
    )  # fmt: skip
    alive = (live & (lower > 0), live, live)
    end, middle, above = (
        NodeStates(scaled(scores, factor, bottom), weight, ok & wins)
        for (factor, bottom, wins), ok in zip(parts, alive, strict=True)
    )
    return end, middle, above
