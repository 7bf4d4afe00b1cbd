"""The optimum for different drafts: scores in cells, whose tokens swap shares of their places.

Order the tokens by p / q and cut them into cells.  Every draft scores at a random place of its
token's cell, and the largest score is selected: the sets that the drafts cannot leave have the
least chance there is.  Within that order some tokens are selected too often and others too
seldom; where two prefix sums of their needs agree, they swap shares of their cells, and what a
swap moves for others is corrected.  The law of the selected token is that of the shares as they
are (`otlp.batched.clocks`), so all that is approximate costs acceptance alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otlp.batched.checks import check_different, reads_values
from otlp.batched.clocks import Clocks, best_scored, set_clocks, within
from otlp.batched.coupling import levels
from otlp.batched.martingale import ranks
from otlp.batched.numerics import TINY, before
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import PADDING, Rows, by_rows, prepare
from otlp.batched.sampling import uniforms

CELLS = 32
"""Of a row."""

FINEST = 3e-4
"""Cells are the finer the less slack there is; less than this is as good as none."""

CORRECTIONS = 3
"""Swaps, each aimed past the wanted law by what the last one missed."""

DEPTH = 2
"""Earlier corrections that the next one learns from."""


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
    How much acceptance is lost says `otlp.batched.acceptance_without_replacement`.

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
    return CELLS * ((rows.tokens.shape[1] + 1) // 2)


def _verified(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    plan = score_plan(rows)
    selected = plan.select(rows, numbers[:, : 2 * rows.tokens.shape[1]])
    return accept_or_replace(rows, plan.selection, selected, numbers[:, -2], numbers[:, -1])


class ScorePlan(NamedTuple):
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


def score_plan(rows: Rows) -> ScorePlan:
    """Plan the selection; see the module."""
    p, q = rows.normalised()
    ratio = p / q.clamp(min=TINY)
    order = torch.sort(ratio, dim=1, stable=True).indices
    target, draft = p.gather(1, order), q.gather(1, order)
    clocks = set_clocks(draft, rows.n, rows.tokens.shape[1])
    inside = within(clocks)
    aim, best, delta = _aim(target, draft, inside, rows)
    cell = _cells(aim, inside, best)
    shares = torch.nn.functional.one_hot(cell, CELLS).to(aim)
    weight = _rung(draft, rows.n.clamp(min=1.0))
    first, level = law_of(clocks, shares)
    law = first
    kept, kept_shares = law, shares
    held = torch.zeros_like(level).scatter_add_(1, cell, weight)
    worth, goals, errors = level / held.clamp(min=TINY), [aim], []
    for _ in range(CORRECTIONS):
        shares = _swap(cell, weight, worth, goals[-1] - first)
        law, level = law_of(clocks, shares)
        better = accepted(target, law) > accepted(target, kept)
        kept = torch.where(better, law, kept)
        kept_shares = torch.where(better[..., None], shares, kept_shares)
        errors = [*errors[-DEPTH:], aim - law]
        goals = [*goals[-DEPTH:], _next_goal(goals, errors, draft)]
    place = ranks(order)
    bound = (1.0 - delta[:, 0]).masked_fill(rows.n[:, 0] == 0, 0.0)
    return ScorePlan(place, kept_shares, kept.gather(1, place), bound)


def _next_goal(goals: list[Tensor], errors: list[Tensor], draft: Tensor) -> Tensor:
    """What to aim at next: Anderson's combination of the last goals, each with its error."""
    def inner(one: Tensor, other: Tensor) -> Tensor:
        return (one * other / draft.clamp(min=TINY)).sum(1, keepdim=True)

    goal, error, basis = goals[-1] + errors[-1], errors[-1], []
    for k in reversed(range(1, len(errors))):
        change = errors[k] - errors[k - 1]
        move = goals[k] - goals[k - 1] + change
        for one, moved in basis:
            part = inner(change, one) / inner(one, one).clamp(min=TINY)
            change, move = change - part * one, move - part * moved
        basis.append((change, move))
        part = inner(error, change) / inner(change, change).clamp(min=TINY)
        goal = goal - part * move
    return goal


def accepted(target: Tensor, law: Tensor) -> Tensor:
    return torch.minimum(target, law).sum(1, keepdim=True)


def law_of(clocks: Clocks, shares: Tensor) -> Tensor:
    """The law y of the selected token, (B, V), from how often it scores in each cell."""
    rule = np.polynomial.legendre.leggauss((clocks.most + 1) // 2)
    place, weight = (torch.from_numpy(0.5 * part).to(shares) for part in rule)
    part = shares[..., None]
    below = (shares.cumsum(2)[..., None] - part) + part * (place + 0.5)
    law, bars = best_scored(clocks, (part * weight).flatten(2), below.flatten(2))
    return law, bars.unflatten(1, (CELLS, -1)).sum(2)


def _aim(
    target: Tensor, draft: Tensor, inside: Tensor, rows: Rows
) -> tuple[Tensor, Tensor, Tensor]:
    ratio = target / draft.clamp(min=TINY)
    most = (rows.tokens.shape[1] / draft.clamp(min=TINY)).clamp(max=1e30)
    ratio = torch.minimum(ratio, most)
    held = (draft * ratio).cumsum(1)
    ends = draft.cumsum(1)
    floor, ceiling, _, _ = levels(ratio, ends, held, inside, torch.empty_like(ratio))
    delta, best = (inside - held).max(1, keepdim=True)
    best = (best + 1).masked_fill(delta <= 0, 0)
    return draft * ratio.clamp(floor, ceiling), best, delta.clamp(min=0.0)


def _cells(aim: Tensor, inside: Tensor, best: Tensor) -> Tensor:
    slack = (aim.cumsum(1) - inside).clamp(min=0.0)
    step = torch.diff(inside, dim=1, prepend=torch.zeros_like(inside[:, :1])).clamp(min=0.0)
    size = aim + step
    slack = 0.5 * (slack + torch.nn.functional.pad(slack[:, :-1], (1, 0)))
    size = size / (size + slack.sqrt() + FINEST)
    upto = size.cumsum(1)
    middle = upto - 0.5 * size
    low, high = before(upto, best), upto[:, -1:]
    count = (CELLS * low / high).round()
    count = torch.where(low > 0, count.clamp(min=1), count)
    count = torch.where(low < high, count.clamp(max=CELLS - 1), count)
    places = torch.arange(aim.shape[1], device=aim.device)
    below = (count * middle / low.clamp(min=TINY)).floor()
    below = torch.minimum(below, count - 1)
    above = count + ((CELLS - count) * (middle - low) / (high - low).clamp(min=TINY)).floor()
    above = above.clamp(max=CELLS - 1)
    return torch.where(places < best, below, above).clamp(0, CELLS - 1).long()


def _rung(draft: Tensor, n: Tensor) -> Tensor:
    time = n
    for _ in range(12):
        silent = torch.exp(-draft * time)
        count = (1.0 - silent).sum(1, keepdim=True)
        time = time + (n - 0.5 - count) / (draft * silent).sum(1, keepdim=True).clamp(min=TINY)
    return -torch.expm1(-draft * time)


def _swap(cell: Tensor, weight: Tensor, worth: Tensor, need: Tensor) -> Tensor:
    up, down = need.clamp(min=0.0).cumsum(1), (-need).clamp(min=0.0).cumsum(1)
    cells = torch.arange(CELLS, device=cell.device)
    ends = torch.searchsorted(cell, cells.expand(cell.shape[0], -1).contiguous(), right=True)
    own = worth.gather(1, cell)[..., None]
    shares = torch.zeros_like(own.expand(-1, -1, CELLS))
    for mine, others, sign in ((up, down, 1), (down, up, -1)):
        stop = before(others, ends)
        start = torch.nn.functional.pad(stop[:, :-1], (1, 0))
        begin = torch.nn.functional.pad(mine[:, :-1], (1, 0))
        overlap = torch.minimum(mine[..., None], stop[:, None]) - torch.maximum(
            begin[..., None], start[:, None]
        )
        rise = sign * (worth[:, None] - own) * weight[..., None]
        useful = (sign * (cells - cell[..., None]) > 0) & (rise > 0) & (overlap > 0)
        shares += torch.where(useful, overlap / torch.where(useful, rise, 1.0), 0.0)
    total = shares.sum(2, keepdim=True)
    shares = shares / total.clamp(min=1.0)
    return shares.scatter_add(2, cell[..., None], 1.0 - total.clamp(max=1.0))
