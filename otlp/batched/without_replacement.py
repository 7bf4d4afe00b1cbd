"""The optimum for different drafts: tokens that swap places in one priority ordering.

Order the tokens by p / q: of drafts of the best rank, the sets that they cannot leave have the
least chance there is.  Within that ordering some tokens are selected too often and others too
seldom; they swap parts of their places (`otlp.batched.ring_swaps`), as by the `random-ranks`
solver, and what a swap moves for others is corrected.  The law of the selected token is that of the
ranks as they are (`otlp.batched.clocks`), so all that is approximate costs acceptance alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.checks import check_different, reads_values
from otlp.batched.clocks import SLICE, BatchedRanks, alone, best_ranked, set_clocks, within
from otlp.batched.even_law import even_law
from otlp.batched.martingale import ranks, sort_rows
from otlp.batched.numerics import TINY, looks
from otlp.batched.rejection import accept_or_replace
from otlp.batched.ring_swaps import SURE, ring_masses, swap_rings
from otlp.batched.rows import CHUNK, PADDING, Rows, by_rows, prepare
from otlp.batched.sampling import uniforms
from otlp.errors import SizeLimitError

MOST_DRAFTS = 20
"""Of a row: of more the law of the selection would lose digits where few others are left."""

CORRECTIONS, UNSEEN = 8, 4
"""Swaps at most, each aimed past the wanted law by what the last one missed; and without a look."""

PACES = 1.0, 1.5, 0.7, 2.0, 3.0, 5.0
"""How long the clocks ring for the swaps, beside the usual: where one stalls, another may do."""

ENOUGH = 5e-7
"""Acceptance that is not worth another correction."""

FEW = 2**13
"""Entries that a CPU works on at once: each row of these is corrected until all are done."""

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
    """Verify n different drafts a row, losslessly and with the optimal acceptance, as a rule.

    Parameters, results and errors are those of `otlp.batched.verify`, but a token that a row
    holds twice has probability 0.  Each row's drafts must have been drawn one by one, each from q
    without the earlier ones, as `otlp.batched.sample_without_replacement` does; their order does
    not matter.  A row holds at most 20 drafts, or `SizeLimitError` is raised.

    Notes
    -----
    Lossless to rounding, since the law y of the selection is that of the ranks that are used.  The
    acceptance is within 1e-6 of the optimum as a rule, but no proof says so: the swaps may stall
    where nearly all tokens are drafted, or few hold nearly all of q (7e-4 is the worst seen, on
    four tokens).  `otlp.batched.acceptance_without_replacement` tells, row by row.

    A sort, then some 5 N^2 passes over (B, K, 3 V) for each correction of the swaps, mostly one or
    two: K nodes of an integral over time are 8 to 16 for N = 4, unless N - 1 tokens hold most of
    q.  All this adapts to the rows where values may be looked at: on a CPU, or if `validate` is
    true.  Elsewhere K is 165 for N = 4, and there are always four corrections: that costs
    many times more, and on few rows the gap is up to 2e-3, more on less than seven tokens.

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

    def verified(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
        plan = rank_plan(rows, validate)
        selected = plan.select(rows, numbers[:, : rows.tokens.shape[1]])
        return accept_or_replace(rows, plan.selection, selected, numbers[:, -2], numbers[:, -1])

    tokens, accepted = by_rows(verified, rows, numbers, most=widest(rows))
    return tokens, accepted


def widest(rows: Rows) -> int:
    """How many times (B, V) the largest arrays of a plan are, for `by_rows`."""
    return CHUNK // FEW if looks(rows.target) else 3 * SLICE


class BatchedRankPlan(NamedTuple):
    """How a draft of each row is selected: by the best of their ranks.

    Attributes
    ----------
    place : Tensor, shape (B, V), int64
        Where each token stands in the order by p / q.
    ranks : BatchedRanks
        Of the tokens, by their places.
    selection : Tensor, shape (B, V), float64
        y, the distribution of the selected token; 0 in rows without drafts.
    bound : Tensor, shape (B,), float64
        The largest acceptance of all plans.
    """

    place: Tensor
    ranks: BatchedRanks
    selection: Tensor
    bound: Tensor

    def select(self, rows: Rows, numbers: Tensor) -> Tensor:
        """Select a draft of each row, shape (B, 1), by uniform numbers of shape (B, N)."""
        token, below, share = self.ranks
        order = torch.arange(token.shape[1], device=token.device)
        best = torch.full_like(rows.tokens, -1)
        for j, place in enumerate(rows.at_drafts(self.place).unbind(1)):
            mine = (token == place[:, None]) & (share > 0.0)
            reached = mine & (below <= numbers[:, j : j + 1])
            best[:, j] = torch.where(reached, order, -1).amax(1)
        best = best.masked_fill(~rows.drafted, -1)
        return rows.tokens.clamp(min=0).gather(1, best.argmax(1, keepdim=True))


def rank_plan(rows: Rows, validate: bool) -> BatchedRankPlan:
    """Find the ranks; see the module.

    Parameters
    ----------
    rows : Rows
    validate : bool
        Whether values may be looked at, if that waits for the device.
    """
    most = rows.tokens.shape[1]
    if most > MOST_DRAFTS:
        raise SizeLimitError(
            f"draft_tokens has {most} drafts a row: at most {MOST_DRAFTS} different ones are "
            "verified here (the solver random-ranks takes 64)"
        )
    look = looks(rows.target) or reads_values(validate, rows.target)
    p, q = rows.normalised()
    _, order = sort_rows(p / q.clamp(min=TINY))
    target, draft = p.gather(1, order), q.gather(1, order)
    clocks = set_clocks(draft, rows.n, most, look)
    kept = alone(draft)
    inside = within(clocks, kept)
    first = law = torch.diff(inside, dim=1, prepend=torch.zeros_like(rows.n))
    kept = BatchedRanks(*(pad(part, (0, 2 * draft.shape[1])) for part in kept))
    bound = 1.0 - (inside - target.cumsum(1)).amax(1, keepdim=True).clamp(min=0.0)
    accepted = torch.minimum(target, law).sum(1, keepdim=True)
    aim, mass = even_law(target, inside, look), ring_masses(draft, rows.n)
    for pace in PACES if look else PACES[:1]:
        goals: list[Tensor] = [aim]
        errors: list[Tensor] = []
        for _ in range(CORRECTIONS if look else UNSEEN):
            short = bound - accepted > ENOUGH
            if look and not bool(short.any()):
                break
            swapped = swap_rings((pace * mass).clamp(max=SURE), first, goals[-1])
            found = best_ranked(clocks, swapped.used() if look else swapped)
            gained = torch.minimum(target, found).sum(1, keepdim=True)
            better = short & (gained > accepted)
            parts = zip(swapped, kept, strict=True)
            kept = BatchedRanks(*(torch.where(better, now, before) for now, before in parts))
            accepted, law = torch.where(better, gained, accepted), torch.where(better, found, law)
            errors = [*errors[-DEPTH:], aim - found]
            goals = [*goals[-DEPTH:], next_goal(goals, errors, draft)]
    place = ranks(order)
    selection = law.gather(1, place).clamp(min=0.0).masked_fill(rows.n == 0, 0.0)
    return BatchedRankPlan(place, kept, selection, bound.masked_fill(rows.n == 0, 0.0)[:, 0])


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
    # where corrections diverge, goals would grow beyond all numbers
    return goal.clamp(-1.0, 2.0)
