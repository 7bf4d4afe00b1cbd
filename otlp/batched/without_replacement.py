"""The optimum for different drafts: scores in cells, whose tokens swap shares of their places.

Order the tokens by p / q and cut them into cells.  Every draft scores at a random place of its
token's cell, and the largest score is selected: the sets that the drafts cannot leave have the
least chance there is.  Within that order some tokens are selected too often and others too
seldom; where two prefix sums of their needs agree, they swap shares of their cells, and what a
swap moves for others is corrected.  The law of the selected token is that of the shares as they
are (`otlp.batched.clocks`), so all that is approximate costs acceptance alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from otlp.batched.checks import check_different, reads_values
from otlp.batched.clocks import HEADS, NODES, DraftClocks, best_scored, set_clocks, within
from otlp.batched.coupling import levels
from otlp.batched.martingale import ranks, sort_rows
from otlp.batched.numerics import TINY, before, looks
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import PADDING, Rows, by_rows, prepare
from otlp.batched.sampling import uniforms

CELLS = 32
"""Of a row."""

FINEST = 3e-4
"""What a cell may hold where there is no slack."""

CORRECTIONS = 6
"""Swaps at most, each aimed past the wanted law by what the last one missed."""

ENOUGH = 1e-7
"""Acceptance that is not worth another correction."""

DEPTH = 2
"""Earlier corrections that the next one learns from."""

NEWTON_STEPS = 6
"""To the nodes of Gauss's rule, from starts that are good to two digits."""


def verify_without_replacement(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n different drafts a row, losslessly and with nearly the optimal acceptance.

    Parameters, results and errors are those of `otlp.batched.verify`, but a token that a row
    holds twice has probability 0.  Each row's drafts must have been drawn one by one, each from q
    without the earlier ones, as `otlp.batched.sample_without_replacement` does; their order does
    not matter.

    Notes
    -----
    Lossless to rounding, since the law y of the selection is that of the shares that are used.
    How much acceptance is lost says `otlp.batched.acceptance_without_replacement`: mostly below
    1e-6, more where a few tokens hold nearly all of q.  Up to eight passes over (B, V, U), where
    U is `CELLS` times N / 2, and products with `otlp.batched.clocks.DEGREES` polynomials in each;
    rows are worked on in chunks.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.5, 0.1, 0.3]])
    >>> draft = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    >>> drafts = batched.sample_without_replacement(draft, 2, generator)
    >>> tokens, accepted = batched.verify_without_replacement(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    if reads_values(validate, target):
        check_different(rows.tokens, PADDING)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    tokens, accepted = by_rows(_verified, rows, numbers, most=widest(rows))
    return tokens, accepted


def widest(rows: Rows) -> int:
    """How many times (B, V) the largest arrays of a plan are, for `by_rows`."""
    most, size = rows.tokens.shape[1], rows.target.shape[1]
    bars = CELLS * ((most + 1) // 2)
    return max(bars, 2 * HEADS * most * most * bars * NODES // size)


def _verified(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    plan = cell_plan(rows)
    selected = plan.select(rows, numbers[:, : 2 * rows.tokens.shape[1]])
    return accept_or_replace(rows, plan.selection, selected, numbers[:, -2], numbers[:, -1])


class CellPlan(NamedTuple):
    """How a draft of each row is selected: by the largest of their scores.

    Attributes
    ----------
    place : Tensor, shape (B, V), int64
        Where each token stands in the order by p / q.
    shares : Tensor, shape (B, V, `CELLS`), float64
        How often the token at each place scores in each cell, where it does so uniformly.
    selection : Tensor, shape (B, V), float64
        y, the distribution of the selected token; 0 in rows without drafts.
    bound : Tensor, shape (B,), float64
        The largest acceptance of all plans.
    """

    place: Tensor
    shares: Tensor
    selection: Tensor
    bound: Tensor

    def select(self, rows: Rows, numbers: Tensor) -> Tensor:
        """Select a draft of each row, shape (B, 1), by uniform numbers of shape (B, 2 N)."""
        which, where = numbers.chunk(2, 1)
        drafted = rows.at_drafts(self.place)[..., None].expand(-1, -1, self.shares.shape[2])
        reached = self.shares.gather(1, drafted).cumsum(2)
        cell = (reached <= which[..., None] * reached[..., -1:]).sum(2)
        score = (cell + where).masked_fill(~rows.drafted, -1.0)
        return rows.tokens.clamp(min=0).gather(1, score.argmax(1, keepdim=True))


def cell_plan(rows: Rows) -> CellPlan:
    """Find the shares; see the module.  Some 10 ms a row of 8,192 tokens a correction."""
    p, q = rows.normalised()
    _, order = sort_rows(p / q.clamp(min=TINY))
    target, draft = p.gather(1, order), q.gather(1, order)
    clocks = set_clocks(draft, rows.n, rows.tokens.shape[1])
    inside = within(clocks)
    every = torch.ones_like(draft)[..., None]
    drafted = best_scored(clocks, every, every)
    aim, best, bound = wanted(target, draft, inside, drafted)
    cell = cut(aim, inside, best)
    kept = one_hot(cell, CELLS).to(aim)
    first = law = score_law(clocks, kept)
    accepted = torch.minimum(target, law).sum(1, keepdim=True)
    goals: list[Tensor] = [aim]
    errors: list[Tensor] = []
    for _ in range(CORRECTIONS):
        if looks(aim) and bool((bound - accepted <= ENOUGH).all()):
            break
        shares = swap(cell, drafted, first, goals[-1])
        found = score_law(clocks, shares)
        now = torch.minimum(target, found).sum(1, keepdim=True)
        better = (now > accepted) & (bound - accepted > ENOUGH)
        accepted, law = torch.where(better, now, accepted), torch.where(better, found, law)
        kept = torch.where(better[..., None], shares, kept)
        errors = [*errors[-DEPTH:], aim - found]
        goals = [*goals[-DEPTH:], next_goal(goals, errors, draft)]
    place = ranks(order)
    bound = bound.masked_fill(rows.n == 0, 0.0)[:, 0]
    return CellPlan(place, kept, law.gather(1, place).clamp_(min=0.0), bound)


def gauss_rule(most: int) -> tuple[list[float], list[float]]:
    """Places and weights on [-1, 1] that integrate polynomials of degree below `most`.

    By Newton's steps in plain Python: the compiler takes these for constants, NumPy's rule not.
    """
    count = (most + 1) // 2
    places: list[float] = []
    weights: list[float] = []
    for k in range(count):
        x, slope = math.cos(math.pi * (k + 0.75) / (count + 0.5)), 1.0
        for _ in range(NEWTON_STEPS):
            last, here = 1.0, x
            for j in range(2, count + 1):
                last, here = here, ((2 * j - 1) * x * here - (j - 1) * last) / j
            slope = count * (x * here - last) / (x * x - 1.0)
            x -= here / slope
        places.append(x)
        weights.append(2.0 / ((1.0 - x * x) * slope * slope))
    return places, weights


def score_law(clocks: DraftClocks, shares: Tensor) -> Tensor:
    """The law y of the selected token, (B, V), from how often it scores in each cell."""
    place, weight = (0.5 * shares.new_tensor(part) for part in gauss_rule(clocks.most))
    part = shares[..., None]
    below = (shares.cumsum(2)[..., None] - part) + part * (place + 0.5)
    return best_scored(clocks, (part * weight).flatten(2), below.flatten(2))


def wanted(
    target: Tensor, draft: Tensor, inside: Tensor, drafted: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A best law of the selected token, q clip(p / q, c, C).

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        p and q, ordered by p / q.
    inside : Tensor, shape (B, V)
        Probability that all drafts are among the first tokens.
    drafted : Tensor, shape (B, V)
        Probability that a token is drafted: a larger p is as good.

    Returns
    -------
    law : Tensor, shape (B, V)
    best : Tensor, shape (B, 1), int64
        How many of the first tokens are the set that bounds the acceptance.
    bound : Tensor, shape (B, 1)
        That bound.
    """
    mass = draft.clamp(min=TINY)
    ratio = (target / mass).minimum((drafted / mass).amax(1, keepdim=True))
    held = (draft * ratio).cumsum(1)
    floor, ceiling, _, _ = levels(ratio, draft.cumsum(1), held, inside, torch.empty_like(held))
    lack, best = (inside - held).max(1, keepdim=True)
    best = (best + 1).masked_fill(lack <= 0, 0)
    return draft * ratio.clamp(floor, ceiling), best, 1.0 - lack.clamp(min=0.0)


def cut(law: Tensor, inside: Tensor, best: Tensor) -> Tensor:
    """Cut the ordered tokens into cells, shape (B, V): which cell each is in.

    Within a cell the order is lost.  That does no harm where the first tokens may be selected more
    often than they must be, by a slack that is large beside the square of what the cell holds: so
    cells are as large as the root of the slack, and one ends where the `best` set does.
    """
    slack = (law.cumsum(1) - inside).clamp(min=0.0)
    slack = 0.5 * (slack + pad(slack[:, :-1], (1, 0)))
    size = law + torch.diff(inside, dim=1, prepend=torch.zeros_like(best)).clamp(min=0.0)
    size = size / (size + slack.sqrt() + FINEST)
    ends = size.cumsum(1)
    middle, low, high = ends - 0.5 * size, before(ends, best), ends[:, -1:]
    count = (CELLS * low / high).round().clamp(1, CELLS - 1)
    count = torch.where(low > 0, torch.where(low < high, count, CELLS), 0)
    lower = torch.minimum((count * middle / low.clamp(min=TINY)).floor(), count - 1)
    higher = count + ((CELLS - count) * (middle - low) / (high - low).clamp(min=TINY)).floor()
    first = torch.arange(law.shape[1], device=law.device) < best
    return torch.where(first, lower, higher).clamp(0, CELLS - 1).long()


def swap(cell: Tensor, drafted: Tensor, first: Tensor, goal: Tensor) -> Tensor:
    """Swap shares of cells until each token is selected as often as it should be.

    That is so if a swap changes nobody else's chances.  Tokens that need more swap with tokens of
    later cells that need less, first come, first served: partners are where two prefix sums of the
    needs agree.

    Parameters
    ----------
    cell : Tensor, shape (B, V), int64
        Ascending.
    drafted, first, goal : Tensor, shape (B, V), float64
        How often a token is drafted, selected without swaps, and to be selected.

    Returns
    -------
    Tensor, shape (B, V, `CELLS`), float64
    """
    none = drafted.new_zeros(drafted.shape[0], CELLS)
    worth = none.scatter_add(1, cell, first) / none.scatter_add(1, cell, drafted).clamp(min=TINY)
    cells = torch.arange(CELLS, device=cell.device)
    lasts = torch.searchsorted(cell, cells.repeat(cell.shape[0], 1), right=True)
    rise = drafted[..., None] * (worth[:, None] - worth.gather(1, cell)[..., None])
    ahead = cells - cell[..., None]
    need = goal - first
    up, down = need.clamp(min=0.0).cumsum(1), (-need).clamp(min=0.0).cumsum(1)
    shares = torch.zeros_like(rise)
    for own, others, sign in ((up, down, 1), (down, up, -1)):
        ends = before(others, lasts)
        stop = torch.minimum(own[..., None], ends[:, None])
        start = torch.maximum(
            pad(own[:, :-1], (1, 0))[..., None], pad(ends[:, :-1], (1, 0))[:, None]
        )
        useful = (sign * ahead > 0) & (sign * rise > 0) & (stop > start)
        shares += torch.where(useful, (stop - start) / torch.where(useful, sign * rise, 1.0), 0.0)
    total = shares.sum(2, keepdim=True)
    shares /= total.clamp(min=1.0)
    return shares.scatter_add_(2, cell[..., None], 1.0 - total.clamp(max=1.0))


def next_goal(goals: list[Tensor], errors: list[Tensor], draft: Tensor) -> Tensor:
    """What to aim at next: Anderson's combination of the last goals, each with its error."""
    scale = draft.clamp(min=TINY).rsqrt()
    goal, error = goals[-1] + errors[-1], errors[-1] * scale
    basis: list[tuple[Tensor, Tensor]] = []
    for k in range(len(errors) - 1, 0, -1):
        change, move = (errors[k] - errors[k - 1]) * scale, goals[k] - goals[k - 1]
        move = move + errors[k] - errors[k - 1]
        for unit, moved in basis:
            part = (change * unit).sum(1, keepdim=True)
            change, move = change - part * unit, move - part * moved
        length = torch.linalg.vector_norm(change, dim=1, keepdim=True).clamp(min=TINY)
        basis.append((change / length, move / length))
        goal = goal - (error * basis[-1][0]).sum(1, keepdim=True) * basis[-1][1]
    return goal
