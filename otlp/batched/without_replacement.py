"""The optimum for different drafts: tokens that swap places in one priority ordering.

Order the tokens by p / q: of drafts of the best rank, the sets that they cannot leave have the
least chance there is.  Within that ordering some tokens are selected too often and others too
seldom; they swap parts of their places (`otlp.batched.rank_swaps`), as by the `random-ranks`
solver, and what a swap moves for others is corrected.  The law of the selected token is that of the
ranks as they are (`otlp.batched.exponential_race`), so what is approximate costs acceptance alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.checks import check_different, reads_values
from otlp.batched.concave_majorant import concave_majorant
from otlp.batched.exponential_race import (
    SLICE,
    BatchedRace,
    BatchedRanks,
    alone,
    best_ranked,
    start_race,
    within,
)
from otlp.batched.martingale import ranks, sort_rows
from otlp.batched.numerics import TINY, looks
from otlp.batched.rank_swaps import SURE, expected_arrivals, swap_ranks
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import CHUNK, PADDING, Rows, by_rows, prepare
from otlp.batched.sampling import uniforms
from otlp.errors import SizeLimitError

MOST_DRAFTS = 20
"""Of a row: of more the law of the selection would lose digits where few others are left."""

LEAST, CORRECTIONS = 20, 12
"""Corrections of the swaps, fewest (over N, and one) and most; each aims past what was missed."""

WORK = 2**22
"""N^2 K V of all corrections beyond the fewest, K the nodes of the integral over time."""

MANY = 12
"""Drafts of which one correction takes as long as a hundred of two."""

FAR, PEAKED = 1e-3, 0.1
"""Acceptance that is worth trying the ranks of drafts that are all certain, and the most of q that
all but the N - 1 likeliest tokens may then have."""

STEEP = 1e100
"""A token so much likelier than another is drawn before it, to far below rounding."""

UNSEEN = 4
"""Corrections where values cannot be looked at."""

PACES = 1.0, 1.5, 0.7, 2.0, 3.0, 5.0
"""How long the race goes on for the swaps, beside the usual: where one stalls, another may do."""

STALLED = 2
"""Corrections in a row that gained nothing on any row, after which the next pace is tried."""

ENOUGH = 5e-7
"""Acceptance that is not worth another correction."""

CPU_CHUNK = 2**13
"""Entries that a CPU works on at once."""

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

    Where n covers the support, all is drafted, and p itself is selected there: no swaps, gap 0.

    Elsewhere a sort, then some 5 N^2 passes over (B, K, 3 V) for each correction of the swaps,
    mostly one or two: K nodes of an integral over time are 8 to 16 for N = 4, unless N - 1 tokens
    hold most of q.  Work is bounded: 12 corrections (48 for N < 5), of rows that need them, and no
    more than max(1, 20 / N) once N^2 K V of all of them would exceed 2^22 (N > 12: none but where
    the gap is above 1e-3, and none of rows where N - 1 tokens hold most of q: there ranks as of
    certain drafts are taken); what is not reached by then stays in the gap.  All this adapts to the
    rows where values may be looked at: on a CPU, or if `validate` is true.  Elsewhere K is 165 for
    N = 4, and there are always four corrections: that costs many times more, and on few rows the
    gap is up to 2e-3, more on less than seven tokens.

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
    return CHUNK // CPU_CHUNK if looks(rows.target) else 3 * SLICE


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
    q = level(q, rows.n, most)
    _, order = sort_rows(p / q.clamp(min=TINY))
    target, draft = p.gather(1, order), q.gather(1, order)
    ranked, law, bound = certain_plan(target, draft)
    open_rows = rows.n < (draft > 0.0).sum(1, keepdim=True)
    if not look:
        swapped = swapped_plan(target, draft, rows.n, most, look)
        for own, other in zip((*ranked, law, bound), (*swapped[0], *swapped[1:]), strict=True):
            own.copy_(torch.where(open_rows, other, own))
    elif bool(open_rows.any()):
        some = open_rows[:, 0].nonzero()[:, 0]
        swapped = swapped_plan(target[some], draft[some], rows.n[some], most, look)
        for own, other in zip((*ranked, law, bound), (*swapped[0], *swapped[1:]), strict=True):
            own[some] = other
    place, none = ranks(order), rows.n == 0
    selection = law.gather(1, place).clamp(min=0.0).masked_fill(none, 0.0)
    return BatchedRankPlan(place, ranked, selection, bound.masked_fill(none, 0.0)[:, 0])


def level(draft: Tensor, n: Tensor, most: int) -> Tensor:
    """Lower what exceeds the n-th largest mass by far: it is drafted first anyhow.

    So no mass that decides what is drafted is subnormal, and no time of an arrival overflows.
    """
    largest = draft.topk(min(most, draft.shape[1]), dim=1).values
    last = (n - 1.0).clamp(0.0, largest.shape[1] - 1.0).long()
    least = largest.gather(1, last)
    lowered = torch.where(least > 0.0, draft.minimum(STEEP * least), draft)
    return lowered / lowered.sum(1, keepdim=True)


def certain_plan(target: Tensor, draft: Tensor) -> tuple[BatchedRanks, Tensor, Tensor]:
    """Ranks, law and bound where all tokens that can be drafted are: p itself is selected there.

    Every token has a low rank and a high one; from the highest on, each takes the high one as
    often as p wants it rather than those before it, so the first with any p always does.
    """
    size = target.shape[1]
    wanted = torch.where(draft > 0.0, target, 0.0)
    bound = wanted.sum(1, keepdim=True)
    # by the largest first: sums of subnormal numbers keep no digits
    scaled = wanted / wanted.amax(1, keepdim=True)
    wanted = torch.where(bound > 0.0, scaled, (draft > 0.0).to(draft))
    total = wanted.sum(1, keepdim=True)
    law = wanted / total
    high = (wanted / wanted.cumsum(1).clamp(min=torch.finfo(wanted.dtype).tiny)).clamp(max=1.0)
    first = (wanted > 0.0).to(torch.int8).argmax(1, keepdim=True)
    high = high.scatter(1, first, 1.0)
    token = torch.arange(size, device=target.device).repeat(len(target), 3)
    nothing = torch.zeros_like(high)
    below = torch.cat([nothing, 1.0 - high, nothing], 1)
    return BatchedRanks(token, below, torch.cat([1.0 - high, high, nothing], 1)), law, bound


def swapped_plan(
    target: Tensor, draft: Tensor, n: Tensor, most: int, look: bool
) -> tuple[BatchedRanks, Tensor, Tensor]:
    """Ranks, law and bound by swaps; rows that are near enough to their bound are left alone.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V), float64
        p and q, ordered by p / q.
    n : Tensor, shape (B, 1), float64
    most : int
        N >= n.
    look : bool
        Whether values may be looked at.

    Returns
    -------
    ranks : BatchedRanks
        Of S = 3 V.
    law : Tensor, shape (B, V), float64
    bound : Tensor, shape (B, 1), float64
    """
    race, ranked = start_race(draft, n, most, look), alone(draft)
    inside = within(race, ranked)
    ranked = BatchedRanks(*(pad(part, (0, 2 * draft.shape[1])) for part in ranked))
    first = torch.diff(inside, dim=1, prepend=torch.zeros_like(n))
    law = first.clone()
    bound = 1.0 - (inside - target.cumsum(1)).amax(1, keepdim=True).clamp(min=0.0)
    accepted = torch.minimum(target, law).sum(1, keepdim=True)
    aim, mass = concave_majorant(target, inside, look), expected_arrivals(draft, n)
    index = torch.arange(len(target), device=target.device)
    goals, left, enough, limited, stalled, pace = [aim], UNSEEN, ENOUGH, False, 0, 0
    errors: list[Tensor] = []
    if look:
        work = most * most * race.times.shape[1] * draft.shape[1]
        # of up to four drafts each is cheap
        limit = CORRECTIONS if most > 4 else 4 * CORRECTIONS
        left = min(max(WORK // max(work, 1), LEAST // most, 1), limit)
        limited = work > WORK and most > MANY
        enough = FAR if limited else ENOUGH
    certain = (race.light.sum(1) < PEAKED) & ((bound - accepted)[:, 0] > FAR)
    some = index[certain] if look else index
    if len(some):
        # where nearly all is drafted swaps stall, and these ranks are nearly the best
        every, _, _ = certain_plan(target[some], draft[some])
        chances = best_ranked(
            BatchedRace(*(part[some] for part in race)), every.used() if look else every
        )
        keep_better(some, target[some], (every, chances), (ranked, law, accepted))
    for _ in range(left):
        if look:
            short = (bound - accepted)[index, 0] > enough
            if limited:
                short &= ~certain[index]
            if not bool(short.any()):
                break
            if not bool(short.all()):
                index = index[short]
                race = BatchedRace(*(part[short] for part in race))
                goals, errors = ([part[short] for part in parts] for parts in (goals, errors))
        p, q = target[index], draft[index]
        swapped = swap_ranks((PACES[pace] * mass[index]).clamp(max=SURE), first[index], goals[-1])
        found = best_ranked(race, swapped.used() if look else swapped)
        better = keep_better(index, p, (swapped, found), (ranked, law, accepted))
        errors = [*errors[-DEPTH:], aim[index] - found]
        goals = [*goals[-DEPTH:], next_goal(goals, errors, q)]
        stalled = 0 if look and bool(better.any()) else stalled + 1
        if look and stalled == STALLED and pace + 1 < len(PACES):
            goals, errors, stalled, pace = [aim[index]], [], 0, pace + 1
    return ranked, law, bound


def keep_better(
    index: Tensor,
    target: Tensor,
    new: tuple[BatchedRanks, Tensor],
    best: tuple[BatchedRanks, Tensor, Tensor],
) -> Tensor:
    """Keep, of some rows, the ranks, law and acceptance that are better; say where, (b, 1)."""
    gained = torch.minimum(target, new[1]).sum(1, keepdim=True)
    better = gained > best[2][index]
    for own, now in zip((*best[0], *best[1:]), (*new[0], new[1], gained), strict=True):
        own[index] = torch.where(better, now, own[index])
    return better


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
